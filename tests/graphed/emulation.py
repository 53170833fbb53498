"""A CUDA graph on the CPU: records the operations of a capture, and runs them again in a replay.

It keeps what matters to `graphed`: nothing has run after a capture, a replay reads and writes the
memory of the capture and draws new random numbers, blocking operations end a capture, a failed
capture leaves the generator unusable until it is repaired and its pool recording for good, and a
pool without graphs is dead.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from launchscope.graphed import cuda
from launchscope.graphed.arguments import identity, memory, whole

_REFUSED = {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select"}


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _storage(tensor: torch.Tensor) -> int:
    return identity(tensor)


def _as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    """With the memory that it has now, as a kernel has it: `x.data = y` gives `x` another one."""
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return tensor.detach() if plain and tensor.layout == torch.strided else tensor


class Pool:
    """Memory that graphs share."""

    def __init__(self) -> None:
        self.users: set[Graph] | None = None  # None before the first
        self.recording: Graph | None = None

    def begin(self, graph: Graph) -> None:
        if self.users is not None and not self.users:
            raise RuntimeError("it->second->use_count > 0 INTERNAL ASSERT FAILED")
        if self.recording is not None:
            raise RuntimeError("beginAllocateToPool: already recording to mempool_id")
        self.users = {*(self.users or ()), graph}
        self.recording = graph


class Graph:
    """The operations of one capture."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.failed = False
        self.calls: list[tuple[Any, Any, Any, list[torch.Tensor | None]]] = []
        self.saved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.made: set[int] = set()
        self.memory: dict[int, tuple[Any, int]] = {}  # storages and their sizes in the capture
        self.replays = 0

    def add(self, func: Any, args: Any, kwargs: Any) -> Any:
        inputs = {_storage(tensor): tensor for tensor in _tensors((args, kwargs))}
        for key, tensor in inputs.items():
            if key not in self.made and key not in self.saved:
                everything = whole(tensor)
                self.saved[key] = everything, everything.clone()
        kept = pytree.tree_map_only(torch.Tensor, _as_it_is, (args, kwargs))
        result = func(*args, **kwargs)
        for tensor in (*inputs.values(), *_tensors(result)):
            storage = memory(tensor).untyped_storage()
            self.memory.setdefault(storage._cdata, (storage, storage.nbytes()))
        outputs: list[torch.Tensor | None] = []
        for tensor in _tensors(result):
            mine = _storage(tensor) not in inputs
            outputs.append(tensor.detach() if mine else None)
            if mine:
                self.made.add(_storage(tensor))
        self.calls.append((func, *kept, outputs))
        return result

    def undo(self) -> None:
        """A capture computes nothing."""
        with torch.no_grad():
            for live, copy in self.saved.values():
                if live.untyped_storage().nbytes():  # FSDP frees and allocates it by itself
                    live.copy_(copy)
        self.saved = {}
        made = [tensor for *_, outputs in self.calls for tensor in outputs if tensor is not None]
        for tensor in made:
            if tensor.is_floating_point() and tensor.untyped_storage().nbytes():
                whole(tensor).fill_(float("nan"))

    def replay(self) -> None:
        self.replays += 1
        freed = [(one, size) for one, size in self.memory.values() if size and not one.nbytes()]
        for storage, size in freed:  # a graph keeps the memory that it has used
            storage.resize_(size)
        with torch.no_grad():
            for func, args, kwargs, outputs in self.calls:
                result = func(*args, **kwargs)
                for part in pytree.tree_leaves(result):  # a GPU's stream would wait for them
                    if func.namespace == "c10d" and not isinstance(part, torch.Tensor):
                        part.wait()
                    elif func.namespace == "_c10d_functional":
                        torch.ops._c10d_functional.wait_tensor(part)
                for old, new in zip(outputs, _tensors(result)):
                    if old is not None:
                        whole(old).copy_(whole(new))
        for storage, _ in freed:
            storage.resize_(0)

    def reset(self) -> None:
        self.calls = []
        if self.pool.users is not None:
            self.pool.users.discard(self)


class _Recording(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self, gpu: EmulatedGpu):
        super().__init__()  # type: ignore[no-untyped-call]
        self.gpu = gpu

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.HigherOrderOperator):
            assert self.gpu.graph is None, "no graph of a test contains one"
            return func(*args, **kwargs)
        if self.gpu.graph is None:
            if self.gpu.poisoned:
                raise RuntimeError("Offset increment outside graph capture")
            return func(*args, **kwargs)
        if self.gpu.fail_at is not None and len(self.gpu.graph.calls) >= self.gpu.fail_at:
            self.gpu.graph.failed = True
            raise self.gpu.failure
        if func._schema.name in _REFUSED:
            self.gpu.poisoned = self.gpu.graph.failed = True
            raise RuntimeError("operation not permitted when stream is capturing")
        return self.gpu.graph.add(func, args, kwargs)


class Stream:
    def wait_stream(self, other: Any) -> None: ...


class EmulatedGpu(cuda.Gpu):
    type = "cpu"

    def __init__(self) -> None:
        self.graph: Graph | None = None
        self.graphs: list[Graph] = []
        self.poisoned = False
        self.broken = False
        self.fail_at: int | None = None  # the operation of a capture that fails
        self.failure: Exception = RuntimeError("no luck")
        self.free_bytes = 1 << 40
        self._stream = Stream()
        self._random: list[Any] = []

    def available(self) -> bool:
        return True

    def capturing(self) -> bool:
        return self.graph is not None

    def device(self) -> int:
        return 0

    def stream(self) -> Any:
        return self._stream

    def make_stream(self) -> Any:
        return Stream()

    @contextlib.contextmanager
    def on(self, side: Any) -> Iterator[None]:
        with _Recording(self):
            yield

    def make_pool(self) -> Any:
        return Pool()

    def begin(
        self, pool: Any, generators: Iterable[torch.Generator], keep_graph: bool = False
    ) -> Any:
        graph = Graph(pool)
        pool.begin(graph)
        self.graph = graph
        self._random = [(g, g.get_state()) for g in self.generators(generators)]
        return self.graph

    def end(self, graph: Any) -> None:
        self.graph = None
        if not graph.failed:
            graph.pool.recording = None
        graph.undo()
        for generator, state in self._random:
            generator.set_state(state)
        self.graphs.append(graph)

    def give_up(self, graph: Any, pool: Any) -> None:
        poisoned, self.poisoned = self.poisoned, False  # a capture has computed nothing to undo
        self.end(graph)
        self.poisoned = poisoned

    def clear_workspaces(self) -> None: ...

    def generators(self, more: Iterable[torch.Generator]) -> list[torch.Generator]:
        return [torch.default_generator, *more]

    def clone_state(self, generator: torch.Generator) -> Any:
        return None

    def repair(self, generator: torch.Generator, clone: Any) -> None:
        self.poisoned = False

    def forget_errors(self) -> None:
        pass

    def usable(self) -> bool:
        return not self.poisoned and not self.broken

    def collect(self) -> None: ...

    def synchronize(self) -> None: ...

    def reserved(self) -> int:
        return 0

    def free(self) -> int:
        return self.free_bytes

    def host_random_state(self) -> torch.Tensor:
        return torch.zeros(1)  # the host's generator is the GPU's here

    def flags(self) -> tuple[Any, ...]:
        return (torch.backends.mkldnn.enabled,)


def emulated(patch: Callable[[Any, str, Any], None]) -> EmulatedGpu:
    """The emulation in place of CUDA; the optimizers take the CPU for a GPU."""
    made = EmulatedGpu()
    patch(cuda, "gpu", made)
    module = importlib.import_module("torch.optim.optimizer")
    patch(module, "_get_foreach_kernels_supported_devices", lambda: ["cpu"])
    for module in [m for name, m in sys.modules.items() if name.startswith("torch.optim.")]:
        if hasattr(module, asks := "_get_capturable_supported_devices"):
            patch(module, asks, lambda *_, **__: ["cpu"])
    return made


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedGpu]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are tiny: handing them to threads takes most of the time
    try:
        yield emulated(monkeypatch.setattr)
    finally:
        torch.set_num_threads(threads)
