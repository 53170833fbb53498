"""Pastes recipes into small scripts and runs them with a stand-in for the graph on the CPU.

A capture notes the ops of the dispatcher with the tensors they had, and leaves no trace of its
own in their memory; a replay runs the same ops on the same memory. So a value that a graph
would freeze is frozen here as well, and an input that nobody copied in keeps its old content.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from launchscope.model import Profile, StepSource
from launchscope.rules import recipe
from launchscope.runner.source.step import step_source
from launchscope.runner.userlines import short_path
from tests.rules.profiles import profile

Ops = list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]]


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


class _Capture(TorchDispatchMode):
    """Notes ops; `undo` gives back what they found in memory that is not their own."""

    def __init__(self, ops: Ops):
        super().__init__()  # type: ignore[no-untyped-call]
        self.ops = ops
        self.before: dict[int, tuple[Any, Any]] = {}
        self.made: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("the capture reads a value on the host")
        kwargs = kwargs or {}
        for tensor in _tensors((args, kwargs)):
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in self.made and storage.data_ptr() not in self.before:
                self.before[storage.data_ptr()] = storage, storage.clone()
        out = func(*args, **kwargs)
        self.made |= {t.untyped_storage().data_ptr() for t in _tensors(out)} - set(self.before)
        self.ops.append((func, args, kwargs, out))
        return out

    def undo(self) -> None:
        for storage, content in self.before.values():
            storage.copy_(content)


class Graph:
    """In place of torch.cuda.CUDAGraph."""

    def __init__(self) -> None:
        self.ops: Ops = []

    def replay(self) -> None:
        with torch.no_grad():
            for func, args, kwargs, out in self.ops:
                again = func(*args, **kwargs)
                for kept, new in zip(_tensors(out), _tensors(again), strict=True):
                    if kept.data_ptr() != new.data_ptr():
                        kept.copy_(new)


@contextlib.contextmanager
def _capturing(graph: Graph, **_: Any) -> Iterator[None]:
    mode = _Capture(graph.ops)
    with mode:
        yield
    mode.undo()


class _OnHost(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("device") == "cuda":
            kwargs["device"] = "cpu"
        return func(*("cpu" if isinstance(a, str) and a == "cuda" else a for a in args), **kwargs)


def _stand_in(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(torch.cuda, "CUDAGraph", Graph)
    patch.setattr(torch.cuda, "graph", _capturing)
    patch.setattr(torch.cuda, "Stream", lambda: None)
    for name in ("set_stream", "current_stream"):
        patch.setattr(torch.cuda, name, lambda *_: None)
    for name in ("adam", "rmsprop", "nadam"):
        module = sys.modules[f"torch.optim.{name}"]
        patch.setattr(module, "_get_capturable_supported_devices", lambda *_, **__: ["cpu"])


def run(code: str, path: Path, probe: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """What the script leaves in its names."""
    path.write_text(code)
    space: dict[str, Any] = {"torch": torch, "probe": probe}
    torch.manual_seed(0)
    with _OnHost():
        exec(compile(code, str(path), "exec"), space)
    return space


def source_of(head: str, loop: str, folder: Path, step: tuple[str, str]) -> StepSource:
    """The step from the line that has the one text to the line that has the other.

    `head` leaves the tensors that are read by the step in `inputs`; `loop` calls `probe()`.
    """
    path, found = folder / "train.py", list[StepSource]()
    lines = [number for number, line in enumerate((head + loop).splitlines(), 1)
             for text in step if text in line]  # fmt: skip

    def probe() -> None:
        space = sys._getframe(1).f_globals
        wanted = {t.untyped_storage().data_ptr() for t in _tensors(space["inputs"])}
        source = None if found else step_source(
            torch,
            sys._getframe(1),
            short_path(str(path)),
            lines,
            lambda tensor: tensor.untyped_storage().data_ptr() in wanted,
            [v for v in space.values() if isinstance(v, torch.optim.Optimizer)],
        )  # fmt: skip
        found.extend([source] if source is not None else [])

    run(head + loop, path, probe)
    return found[0]


def pasted(
    head: str,
    loop: str,
    folder: Path,
    step: tuple[str, str] = ("model(", "optimizer.step"),
    change: Callable[[Profile], Profile] = lambda of: of,
    rest: str = "...",
) -> tuple[dict[str, Any], dict[str, Any], str]:
    """What the script leaves as it is, what it leaves with the recipe in it, and the recipe.

    `rest` is what the person puts in place of the block's last line.
    """
    source = source_of(head, loop, folder, step)
    code = recipe.specific(change(profile(facts={"step_source": source})), source)
    eager = run(head + loop, folder / "eager.py")
    with pytest.MonkeyPatch.context() as patch:
        _stand_in(patch)
        done = code.replace("...  # the rest of the loop, as now", rest)
        return eager, run(f"{head}{done}\n", folder / "pasted.py"), code
