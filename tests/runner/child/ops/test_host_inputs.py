"""Copies of host tensors in the step's own lines, found while a small script runs."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections import UserDict, UserList, namedtuple
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from launchscope.model import HostInput, TensorShape
from launchscope.runner.child.ops.host_inputs import host_inputs
from launchscope.runner.child.ops.torch_modes import dispatch_mode
from launchscope.runner.child.source_lines import short_path


def found_in(
    folder: Path, code: str, lines: list[int], **names: Any
) -> tuple[HostInput, ...] | None:
    """Runs `code`; what is found of its `lines` when it calls `probe()` first."""
    script = folder / "train.py"
    script.write_text(code)
    found: list[tuple[HostInput, ...] | None] = []

    def probe() -> None:
        found.append(host_inputs(torch, sys._getframe(1), short_path(str(script)), lines))

    exec(compile(code, str(script), "exec"), {"probe": probe, "device": "cpu", **names})
    return found[0]


def moved(folder: Path, code: str, lines: list[int], **names: Any) -> list[tuple[int, ...]]:
    found = found_in(folder, code, lines, **names)
    assert found is not None
    return [entry.tensor.dims for entry in found]


X = torch.randn(2, 3)


def test_an_argument_that_the_step_moves_is_found_with_its_shape(tmp_path: Path) -> None:
    code = "for x in loader:\n    y = (x.to(device) * 2).sum()\n    probe()\n    x.cuda\n"
    assert found_in(tmp_path, code, [2], loader=[X]) == (HostInput(TensorShape((2, 3), "float32")),)


def test_the_script_gets_no_second_warning_about_its_source(tmp_path: Path) -> None:
    code = "warnings.simplefilter('error')\nname = '\\d'\nx.to(device)\nprobe()\n"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert moved(tmp_path, code, [3], x=X, warnings=warnings) == [(2, 3)]
        assert [action for action, *_ in warnings.filters[:2]] == ["error", "ignore"]


@pytest.mark.parametrize(
    "batch",
    [{"ids": X, "n": 3}, [X, 3], SimpleNamespace(ids=X, n=3), UserDict(ids=X)],
    ids=["dict", "list", "object", "mapping"],
)
def test_every_tensor_of_a_batch_counts(tmp_path: Path, batch: Any) -> None:
    code = "def move():\n    (lambda: batch.to(device))\n    probe()\nmove()\n"
    assert moved(tmp_path, code, [2], batch=batch) == [(2, 3)]


def test_lines_outside_the_step_do_not_count(tmp_path: Path) -> None:
    code = "x.to(device)\ny = x * 2\nprobe()\nx.to(device)\ndef f():\n    return x.to(device)\n"
    assert moved(tmp_path, code, [2, 6], x=X) == []


def test_a_statement_of_several_lines_is_one(tmp_path: Path) -> None:
    code = "for x in loader:\n    y = torch.relu(\n        x.to(device)\n    )\n    probe()\n"
    assert moved(tmp_path, code, [2], loader=[X], torch=torch) == [(2, 3)]


def test_a_model_or_a_view_that_moves_is_no_input(tmp_path: Path) -> None:
    code = "model.to(device)\nx[:, 1:].to(device)\nprobe()\n"
    assert moved(tmp_path, code, [1, 2], x=X, model=torch.nn.Linear(3, 3)) == []


class Parts:
    """Everything that the step may read a batch from, and a property that it must not."""

    __slots__ = ("asked", "slot")
    Pair = namedtuple("Pair", "first second")

    def __init__(self) -> None:
        self.slot = X
        self.asked = 0

    @property
    def computed(self) -> torch.Tensor:
        self.asked += 1
        return X


@pytest.mark.parametrize(
    ("expression", "shape"),
    [
        ("parts.slot", (2, 3)),
        ("box.inner[0]", (2, 3)),
        ("box.pair.second", (3,)),
        ("model.weight", (3, 3)),
        ("model.table", (2, 3)),
        ("batches[step % 2 - 1]['x']", (2, 3)),
        ("x[step // 4]", (3,)),
        ("x[-1, 2]", ()),
        ("x[rows]", (4, 3)),
        ("parts.computed", None),
        ("parts.absent", None),
        ("x[7]", None),
        ("x[x > 0]", None),
        ("batches[step % 0]", None),
        ("absent['x']", None),
        ("odd[0]", None),
        ("x.T", None),
    ],
)
def test_a_value_is_read_without_running_anything(
    tmp_path: Path, expression: str, shape: tuple[int, ...] | None
) -> None:
    model = torch.nn.Linear(3, 3)
    model.register_buffer("table", X)
    names: dict[str, Any] = {
        "parts": Parts(),
        "box": SimpleNamespace(inner=(X,), pair=Parts.Pair(0, X[0])),
        "model": model,
        "batches": [{"y": 0}, {"x": X, Parts(): 1}],
        "step": 6,
        "x": X,
        "rows": torch.tensor([0, 1, 1, 0]),
        "odd": UserList([X]),
    }
    with no_ops():
        code = f"probe()\n{expression}.to(device) if 0 else 0\n"
        found = found_in(tmp_path, code, [2], **names)
    assert found is not None
    assert [entry.tensor.dims for entry in found] == ([] if shape is None else [shape])
    assert names["parts"].asked == 0


@contextlib.contextmanager
def no_ops() -> Iterator[None]:
    """No op may run inside."""

    def refuse(func: Any, run: Any, args: Any, kwargs: Any) -> None:
        raise AssertionError(func)

    with dispatch_mode(refuse):
        yield


def test_locals_that_the_script_has_asked_for_stay_as_they_were(tmp_path: Path) -> None:
    code = """\
def move(x):
    known = locals()
    x.to(device)
    later = 1
    probe()
    kept.update(known)
kept = {}
move(x)
del x
assert "later" not in kept and kept["x"] is not None
"""
    found_in(tmp_path, code, [3], x=X)


def test_without_the_file_on_the_stack_there_are_no_inputs() -> None:
    assert host_inputs(torch, sys._getframe(), "elsewhere.py", [1]) is None
