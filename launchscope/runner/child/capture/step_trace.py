"""Records what one step gets from outside: tensors that it does not make, and Python values.

What differs between two steps of one script is what a captured step needs as an input, or what
a capture freezes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from launchscope.model import SourceLine, TensorOrigin, TensorShape
from launchscope.runner.child.capture.state import copy_of
from launchscope.runner.child.events.hooks import Hooks
from launchscope.runner.child.facts.plain_values import is_distributed, shape_of
from launchscope.runner.child.facts.source_lines import user_line
from launchscope.runner.child.facts.step_ops import dotted, weak_storage, written_by
from launchscope.runner.child.facts.torch_modes import dispatch_mode
from launchscope.runner.child.facts.torch_types import (
    Args,
    DType,
    Function,
    Kwargs,
    Mode,
    Op,
    StorageRef,
    Tensor,
    Torch,
    Value,
)

Scalar = bool | int | float | complex | str


@dataclass(frozen=True)
class Call:
    """One dispatched op: steps with the same `form` did the same, with these `scalars`.

    `reads` are the storages of its arguments, `writes` those on the device that it made or changed.
    """

    op: str
    form: str
    scalars: tuple[Scalar, ...]
    where: SourceLine | None
    in_optimizer: bool
    in_backward: bool = False
    reads: frozenset[StorageRef] = frozenset()
    writes: frozenset[StorageRef] = frozenset()


class Place(NamedTuple):
    """The part of a storage that a tensor shows."""

    storage: StorageRef
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass
class View:
    """A tensor from outside the step, at its first use. `tensor` aliases its memory.

    If it is another tensor than the captured step's, either `value` is a copy of the input that
    the step read, or `origin` says why it is no input: a replay goes on reading the captured one.
    """

    place: Place
    tensor: Tensor
    value: Tensor = None
    origin: TensorOrigin | None = None
    shape: TensorShape | None = None
    where: SourceLine | None = None
    # If the step made it on the host: the storages that its data went into.
    filled: set[StorageRef] = field(default_factory=set)


@dataclass
class StepTrace:
    """Everything recorded about one step, in the order of its ops."""

    calls: list[Call] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    made: dict[StorageRef, DType] = field(default_factory=dict)  # in order
    from_host: set[StorageRef] = field(default_factory=set)  # filled with data from the host
    used: set[StorageRef] = field(default_factory=set)  # those in `from_host` that the step read
    written: dict[StorageRef, DType] = field(default_factory=dict)  # from outside the step
    unjoined_streams: list[SourceLine] = field(default_factory=list)  # lines outside the capture

    def settle(self) -> None:
        """Once the step is over: data that it made on the host and used itself is no input.

        What it only fetched for the next step is one, such as a prefetched batch.
        """
        for view in self.views:
            if view.filled & self.used and view.value is not None:
                view.value = None
                view.origin = "host"


class StepRecorder:
    """Records one step into `trace`, the captured one if `expected` is None.

    Otherwise `expected` is the captured step and `before` the step before this one. `state` are
    the storages of parameters, gradients and the like as the step begins, `on_device(tensor)` says
    whether kernels work on it, and `capturing()` whether the current stream is being captured.
    """

    def __init__(
        self,
        torch: Torch,
        hooks: Hooks,
        on_device: Callable[[Tensor], bool],
        expected: StepTrace | None = None,
        before: StepTrace | None = None,
        state: AbstractSet[StorageRef] = frozenset(),
        capturing: Callable[[], bool] | None = None,
    ):
        from torch.utils._python_dispatch import _disable_current_modes
        from torch.utils._pytree import tree_leaves

        self.trace = StepTrace()
        self._torch, self._hooks, self._leaves = torch, hooks, tree_leaves
        self._unseen = _disable_current_modes  # around our own ops: other modes count the script's
        self._on_device = on_device
        self._expected = expected
        self._before = before
        self._state = state
        self._capturing = capturing
        self._seen: set[Place] = set()
        self._on_host: set[StorageRef] = set()  # made in the step, by the host
        self._from_device: set[StorageRef] = set()  # on the host, made by ops on the device
        self._outside: set[StorageRef] = set()  # storages of the views

    def mode(self) -> Mode:
        """The TorchDispatchMode to enter around the step."""
        return dispatch_mode(self._on_op)

    def _on_op(self, op: Op, run: Function, args: Args, kwargs: Kwargs) -> Value:
        values = self._leaves((args, kwargs))
        tensors = self._tensors(values)
        if any(map(is_distributed, tensors)):
            return NotImplemented  # the op on this rank's part follows
        touches = any(map(self._on_device, tensors))
        if touches:  # before the op, which may write what it reads
            self._before_op(tensors)
        result = run(*args, **kwargs)
        results = self._tensors(self._leaves(result))
        if not touches and not any(map(self._on_device, results)):
            self._on_host |= _storages(results)
            return result
        if not touches:
            self._before_op(tensors)
        self._note_results(tensors, results)
        writes = self._note_writes(op, args, kwargs, tensors, results)
        self._note_call(op, values, tensors, writes)
        return result

    def _tensors(self, values: list[Value]) -> list[Tensor]:
        return [value for value in values if isinstance(value, self._torch.Tensor)]

    def _before_op(self, tensors: list[Tensor]) -> None:
        trace = self.trace
        for tensor in tensors:
            place = _place(tensor)
            # A kernel gets the number in a scalar tensor on the host by value.
            if place is None or (tensor.ndim == 0 and not self._on_device(tensor)):
                continue
            if place.storage in trace.from_host:
                trace.used.add(place.storage)
            if place not in self._seen and place.storage not in trace.made:
                self._seen.add(place)
                with self._unseen():
                    self._first_use(place, tensor)

    def _first_use(self, place: Place, tensor: Tensor) -> None:
        views, expected = self.trace.views, self._expected
        view = View(place, tensor.detach() if place.storage in self._on_host else None)
        if expected is None:
            view.tensor = _alias(self._torch, tensor)
        elif len(views) < len(expected.views) and expected.views[len(views)].place != place:
            view.origin, view.shape = self._origin(place.storage), shape_of(tensor)
            view.where = self._line()
            captured = expected.views[len(views)].tensor
            on_host = view.tensor is not None  # the step made it there, maybe the same each time
            if view.origin is None and not (on_host and self._torch.equal(view.tensor, captured)):
                view.value = copy_of(self._torch, tensor)
        views.append(view)
        self._outside.add(place.storage)

    def _origin(self, storage: StorageRef) -> TensorOrigin | None:
        """Why this is no input; None for an input, which data from the host always is."""
        if storage in self._state:
            return "state"
        before = self._before
        if before is None or storage not in before.made or storage in before.from_host:
            return None
        return "previous_step"

    def _note_results(self, tensors: list[Tensor], results: list[Tensor]) -> None:
        """What an op made, and which of it holds data that the step made on the host."""
        trace = self.trace
        all_on_host = bool(tensors) and not any(map(self._on_device, tensors))
        for tensor in results:
            place = _place(tensor)
            if place is None:
                continue
            if place.storage in self._outside:
                self._seen.add(place)  # another view of what came from outside
            elif place.storage not in trace.made:
                trace.made[place.storage] = tensor.dtype
                if all_on_host:
                    trace.from_host.add(place.storage)
        sources = _storages(tensors) & self._on_host
        for view in trace.views:
            if view.place.storage in sources:
                view.filled |= _storages(results)

    def _note_writes(
        self, op: Op, args: Args, kwargs: Kwargs, tensors: list[Tensor], results: list[Tensor]
    ) -> set[StorageRef]:
        """The storages on the device that an op made or changed."""
        trace, reads = self.trace, _storages(tensors)
        writes = _storages(filter(self._on_device, results)) - reads
        if any(map(self._on_device, tensors)):
            self._from_device |= _storages(results) - reads - writes
        with_host_data = any(tensor.ndim and not self._on_device(tensor) for tensor in tensors)
        for tensor in filter(self._on_device, written_by(self._torch, op, args, kwargs)):
            for storage in _storages([tensor]):
                writes.add(storage)
                if storage not in trace.made:
                    trace.written[storage] = tensor.dtype
                if with_host_data:
                    trace.from_host.add(storage)
        return writes

    def _note_call(
        self, op: Op, values: list[Value], tensors: list[Tensor], writes: set[StorageRef]
    ) -> None:
        where = self._line()
        if self._capturing is not None and not self._capturing() and where is not None:
            self.trace.unjoined_streams.append(where)
        shapes = ";".join(f"{tuple(t.shape)}{t.dtype}" for t in tensors)
        scalars = tuple(self._scalars(values))
        inside = self._hooks.in_optimizer, self._hooks.goes_backward()
        reads, name = frozenset(_storages(tensors)), dotted(op._schema.name)
        call = Call(name, f"{op}|{shapes}", scalars, where, *inside, reads, frozenset(writes))
        self.trace.calls.append(call)

    def _line(self) -> SourceLine | None:
        return user_line(sys._getframe()) or self._hooks.backward_where

    def _scalars(self, values: list[Value]) -> Iterator[Scalar]:
        for value in values:
            if isinstance(value, self._torch.Tensor):
                on_host = value.ndim == 0 and value.is_cpu and not self._on_device(value)
                # Attention without a capture hands the state of its dropout to the backward in
                # such tensors, in a capture on the GPU; without dropout they are not even filled.
                if on_host and weak_storage(value) not in self._from_device:
                    with self._unseen():
                        yield value.item()
            elif isinstance(value, Scalar):
                yield value


def _storages(tensors: Iterable[Tensor]) -> set[StorageRef]:
    return {storage for tensor in tensors if (storage := weak_storage(tensor)) is not None}


def _place(tensor: Tensor) -> Place | None:
    """None for a tensor without a storage."""
    storage = weak_storage(tensor)
    if storage is None:
        return None
    return Place(storage, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())


def _alias(torch: Torch, tensor: Tensor) -> Tensor:
    """The same memory as a plain tensor, with no autograd graph behind it."""
    with torch.inference_mode(False), torch.no_grad():
        alias = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return alias.set_(
            tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
        )
