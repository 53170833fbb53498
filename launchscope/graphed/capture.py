"""How everything in this project captures: `GraphCapture` records, `SavedState` is what a failure
has to undo. `graphed` and the runner both use them."""

from __future__ import annotations

import contextlib
import weakref
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch.autograd.graph import get_gradient_edge

from . import cuda
from .arguments import Tensor, by_address, clone, gradient_of, whole

# `release()` of these gives up graphs that do not know the new inner state of a generator.
all_steps: weakref.WeakSet[Any] = weakref.WeakSet()


def scaler_state(scaler: Any) -> dict[int, dict[str, Any]]:
    """What a GradScaler knows about this iteration: which optimizer is unscaled, found_inf."""
    return {
        key: {k: dict(v) if isinstance(v, dict) else v for k, v in state.items()}
        for key, state in scaler._per_optimizer_states.items()
    }


def set_scaler_state(scaler: Any, state: dict[int, dict[str, Any]]) -> None:
    if state or scaler._per_optimizer_states:
        fresh: Any = defaultdict(scaler._per_optimizer_states.default_factory)
        fresh.update({key: dict(value) for key, value in state.items()})
        scaler._per_optimizer_states = fresh


class SavedState:
    """What a step may change, to put back: objects, and the values of `tensors`.

    `tables` are the dictionaries of the optimizers and of their state, because a GradScaler leaves
    its scale as an attribute of a fused optimizer whose step() fails. `generators` are those beside
    the device's own; None saves no generator.
    """

    def __init__(
        self,
        parameters: list[Tensor],
        tables: Iterable[dict[Any, Any]] = (),
        scalers: Iterable[Any] = (),
        generators: Iterable[torch.Generator] | None = (),
        tensors: Iterable[Tensor] = (),
    ):
        self._parameters = parameters
        self.gradients = list(map(gradient_of, parameters))
        self._scalers = [(scaler, scaler_state(scaler)) for scaler in scalers]
        self._tables = [(table, dict(table)) for table in tables]
        known = [] if generators is None else cuda.gpu.generators(generators)
        self._generators = [(generator, generator.get_state()) for generator in known]
        self.live = [whole(tensor) for tensor in by_address(tensors).values()]
        self.copies = list(map(clone, self.live))

    def restore(self) -> None:
        for table, entries in self._tables:
            table.clear()
            table.update(entries)
        with torch.no_grad():
            for live, copy in zip(self.live, self.copies):
                live.copy_(copy)
        for parameter, gradient in zip(self._parameters, self.gradients):
            parameter.grad = gradient
        for scaler, state in self._scalers:
            set_scaler_state(scaler, state)
        for generator, position in self._generators:
            generator.set_state(position)


class GraphCapture:
    """A capture on the current stream, after a warm-up on that stream.

    `with` prepares, and after an error ends what was recording. Inside, `begin` and `end` stand
    around the work of each graph. After an error, `repair` makes the process as it was.
    """

    def __init__(
        self, pool: Any = None, generators: cuda.Generators = (), *, keep_graph: bool = False
    ):
        """Waits for the GPU. The memory of all graphs is in `pool`, by default one of their own."""
        cuda.gpu.collect()
        self.pool = cuda.gpu.make_pool() if pool is None else pool
        self._generators = list(generators)
        self._keep_graph = keep_graph
        self._clones = [(g, cuda.gpu.clone_state(g)) for g in cuda.gpu.generators(self._generators)]
        self._graph: Any = None  # the one that is recorded
        self._prepared = contextlib.ExitStack()

    @property
    def recording(self) -> bool:
        return self._graph is not None

    def __enter__(self) -> GraphCapture:
        self._prepared.enter_context(cuda.no_collection())
        # A graph must not read what autocast has cached outside of it, nor the other way around.
        torch.clear_autocast_cache()
        self._prepared.callback(torch.clear_autocast_cache)
        return self

    def __exit__(self, *error: Any) -> None:
        with self._prepared:
            if self._graph is not None:
                cuda.gpu.give_up(self._graph, self.pool)
                self._graph = None
                cuda.gpu.clear_workspaces()

    def begin(self) -> None:
        cuda.gpu.clear_workspaces()
        self._graph = cuda.gpu.begin(self.pool, self._generators, self._keep_graph)

    def end(self) -> Any:
        """The graph of the work since `begin`. Raises what torch raises if that failed."""
        graph = self._graph
        cuda.gpu.end(graph)
        cuda.gpu.clear_workspaces()
        self._graph = None
        return graph

    def repair(self, saved: SavedState) -> bool:
        """After an error and the end of the `with`: put `saved` back; False if no GPU work runs."""
        cuda.gpu.forget_errors()
        if not cuda.gpu.usable():
            for generator, state in self._clones:  # a generator still counts on a capture
                cuda.gpu.repair(generator, state)
            for step in list(all_steps):
                step.release()
            if not cuda.gpu.usable():
                return False
        saved.restore()
        return True


# Autograd has one AccumulateGrad node for each parameter while any graph refers to it. It runs on
# the stream on which it was made, and a capture cannot wait for the default stream.


def has_node(parameter: Tensor) -> bool:
    """Whether some graph keeps the node of a parameter alive: what is written on it stays then."""
    if not parameter.requires_grad or type(parameter) not in (Tensor, torch.nn.Parameter):
        return False
    with torch.inference_mode(False):
        edge: Any = get_gradient_edge
        edge(parameter).node.metadata["graphed"] = True
        return edge(parameter).node.metadata.pop("graphed", False) is True


def forget_node(parameter: Tensor) -> None:
    """The next graph makes a new node, because torch takes the old one for that of another dtype.
    Graphs that exist keep theirs, which accumulate into the same gradient."""
    data = parameter.data
    other = torch.float32 if data.dtype == torch.float64 else torch.float64
    parameter.data = torch.empty(0, dtype=other, device=data.device)
    parameter.data = data
