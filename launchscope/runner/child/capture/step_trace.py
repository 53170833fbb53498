"""Notes what one step was given from outside: tensors it did not make, and Python values.

Two steps of one script are then compared: what changed between them is what a captured
step would have to be fed, or would have frozen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

from launchscope.model import SourceLine, TensorOrigin, TensorShape
from launchscope.runner.child.hooks.hooks import Hooks
from launchscope.runner.child.hooks.input_shapes import shape_of
from launchscope.runner.child.ops.step_ops import dotted, weak_storage
from launchscope.runner.child.source_lines import user_line

Scalar = bool | int | float | complex | str


@dataclass(frozen=True)
class Call:
    """One dispatched op: `form` tells whether two steps did the same, `scalars` with what."""

    op: str
    form: str
    scalars: tuple[Scalar, ...]
    where: SourceLine | None
    in_optimizer: bool


@dataclass
class View:
    """A tensor from outside the step, at its first use. `tensor` aliases its memory.

    If it is another tensor than the captured step's, either `value` is a copy of the input that
    the step read, or `origin` says why it is no input: a replay goes on reading the captured one.
    """

    key: tuple[Any, ...]
    tensor: Any
    value: Any = None
    origin: TensorOrigin | None = None
    shape: TensorShape | None = None
    where: SourceLine | None = None
    filled: set[Any] = field(default_factory=set)  # what was copied from it, if the step made it


@dataclass
class StepTrace:
    """Everything noted about one step, in the order of its ops."""

    calls: list[Call] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    made: dict[Any, Any] = field(default_factory=dict)  # storage -> dtype, in order
    from_host: set[Any] = field(default_factory=set)  # of those, filled with data of the host
    written: dict[Any, Any] = field(default_factory=dict)  # storages from outside -> dtype
    used: set[Any] = field(default_factory=set)  # storages filled from the host, once read
    unjoined_streams: list[SourceLine] = field(default_factory=list)  # lines outside the capture

    def settle(self) -> None:
        """Once the step is over: data that it made on the host and used itself is no input.

        What it only fetched for the step after it is one, as with a prefetched batch.
        """
        for view in self.views:
            if view.filled & self.used and view.value is not None:
                view.value = None
                view.origin = "host"


class StepRecorder:
    """How a step is witnessed. `expected`: the captured step; None while that is witnessed.

    `before` is the step before this one, to tell what it handed over; `state` the storages of
    parameters, gradients and the like as the step begins. `copy(tensor)` makes the copies of
    inputs, `on_device` says which tensors a kernel works on, `capturing` whether the current
    stream records; None where there is nothing to record.
    """

    def __init__(
        self,
        torch: Any,
        hooks: Hooks,
        on_device: Callable[[Any], bool],
        copy: Callable[[Any], Any],
        expected: StepTrace | None = None,
        before: StepTrace | None = None,
        state: AbstractSet[Any] = frozenset(),
        capturing: Callable[[], bool] | None = None,
    ):
        self.witness = StepTrace()
        self._torch = torch
        self._hooks = hooks
        self._on_device = on_device
        self._copy = copy
        self._expected = expected
        self._before = before
        self._state = state
        self._capturing = capturing
        self._seen: set[tuple[Any, ...]] = set()
        self._on_host: set[Any] = set()  # made in the step, by the host
        self._outside: set[Any] = set()  # storages of the views

    def mode(self) -> Any:
        """The TorchDispatchMode to enter around the step."""
        from torch.utils._python_dispatch import TorchDispatchMode
        from torch.utils._pytree import tree_leaves

        note, torch = self, self._torch

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                kwargs = kwargs or {}
                leaves = tree_leaves((args, kwargs))
                tensors = [v for v in leaves if isinstance(v, torch.Tensor)]
                touches = any(note._on_device(tensor) for tensor in tensors)
                if touches:  # before the op, which may write what it reads
                    note._reads(tensors)
                result = func(*args, **kwargs)
                results = [v for v in tree_leaves(result) if isinstance(v, torch.Tensor)]
                if touches or any(note._on_device(tensor) for tensor in results):
                    if not touches:
                        note._reads(tensors)
                    note._after(func, args, kwargs, leaves, tensors, results)
                else:
                    note._on_host |= {key[0] for key in map(_key, results) if key is not None}
                return result

        mode: Any = Mode
        return mode()

    # ----------------------------------------------------------------------- tensors in

    def _reads(self, tensors: list[Any]) -> None:
        for tensor in tensors:
            key = _key(tensor)
            # A number in a tensor on the host is handed to the kernel by value.
            if key is None or (tensor.ndim == 0 and not self._on_device(tensor)):
                continue
            if key[0] in self.witness.from_host:
                self.witness.used.add(key[0])
            if key in self._seen or key[0] in self.witness.made:
                continue
            self._seen.add(key)
            self._first_use(key, tensor)

    def _first_use(self, key: tuple[Any, ...], tensor: Any) -> None:
        views, expected = self.witness.views, self._expected
        view = View(key, tensor.detach() if key[0] in self._on_host else None)
        if expected is None:
            view.tensor = _alias(self._torch, tensor)
            view.where = user_line(sys._getframe(3))
        elif len(views) < len(expected.views) and expected.views[len(views)].key != key:
            view.origin, view.shape = self._origin(key[0]), shape_of(tensor)
            view.where = user_line(sys._getframe(3)) or self._hooks.backward_where
            if view.origin is None and not self._same_on_host(view, expected.views[len(views)]):
                view.value = self._copy(tensor)
        views.append(view)
        self._outside.add(key[0])

    def _origin(self, storage: Any) -> TensorOrigin | None:
        """What this is if it is no input; data that came from the host always is one."""
        if storage in self._state:
            return "state"
        before = self._before
        if before is None or storage not in before.made or storage in before.from_host:
            return None
        return "previous_step"

    def _same_on_host(self, view: View, captured: View) -> bool:
        """Whether data that each step makes anew on the host is the same in both."""
        return view.key[0] in self._on_host and bool(
            self._torch.equal(view.tensor, captured.tensor)
        )

    # ------------------------------------------------------------------------- ops done

    def _after(
        self,
        func: Any,
        args: Any,
        kwargs: Any,
        leaves: list[Any],
        tensors: list[Any],
        results: list[Any],
    ) -> None:
        witness = self.witness
        from_host = bool(tensors) and not any(map(self._on_device, tensors))
        for tensor in results:
            key = _key(tensor)
            if key is None:
                continue
            if key[0] in self._outside:
                self._seen.add(key)  # another view of what came from outside
            elif key[0] not in witness.made:
                witness.made[key[0]] = tensor.dtype
                if from_host:
                    witness.from_host.add(key[0])
        self._note_filling(func, args, tensors, results)
        # Asked once an op: a foreach optimizer hands over every parameter at a time.
        with_host_data = any(not self._on_device(tensor) and tensor.ndim for tensor in tensors)
        for argument, value in _arguments(func, args, kwargs):
            if argument.alias_info is not None and argument.alias_info.is_write:
                self._writes(value, with_host_data)
        where = user_line(sys._getframe(2)) or self._hooks.backward_where
        if self._capturing is not None and not self._capturing() and where is not None:
            witness.unjoined_streams.append(where)
        shapes = ";".join(f"{tuple(t.shape)}{t.dtype}" for t in tensors)
        witness.calls.append(
            Call(
                dotted(func._schema.name),
                f"{func}|{shapes}",
                tuple(self._scalars(leaves)),
                where,
                self._hooks.in_optimizer,
            )
        )

    def _note_filling(self, func: Any, args: Any, tensors: list[Any], results: list[Any]) -> None:
        """Remember what host data of the step's own making goes into."""
        sources = [tensor for tensor in tensors if not self._on_device(tensor)]
        keys = {key[0] for key in map(_key, sources) if key is not None} & self._on_host
        if not keys:
            return
        into = {key[0] for key in map(_key, results) if key is not None}
        for view in self.witness.views:
            if view.key[0] in keys:
                view.filled |= into

    def _writes(self, value: Any, with_host_data: bool) -> None:
        witness = self.witness
        for tensor in value if isinstance(value, list | tuple) else (value,):
            key = _key(tensor) if isinstance(tensor, self._torch.Tensor) else None
            if key is None or not self._on_device(tensor):
                continue
            if key[0] not in witness.made:
                witness.written[key[0]] = tensor.dtype
            if with_host_data:
                witness.from_host.add(key[0])

    def _scalars(self, leaves: list[Any]) -> list[Scalar]:
        found: list[Scalar] = []
        for value in leaves:
            if isinstance(value, bool | int | float | complex | str):
                found.append(value)
            elif (
                isinstance(value, self._torch.Tensor)
                and value.ndim == 0
                and value.device.type == "cpu"
                and not self._on_device(value)
            ):
                found.append(value.item())
        return found


def _arguments(func: Any, args: Any, kwargs: Any) -> list[tuple[Any, Any]]:
    """Each argument of the schema with the value it was given."""
    known = func._schema.arguments
    given = list(zip(known, args, strict=False))
    return given + [(a, kwargs[a.name]) for a in known[len(args) :] if a.name in kwargs]


def _key(tensor: Any) -> tuple[Any, ...] | None:
    """Which memory the tensor shows, and how; the storage is held weakly."""
    storage = weak_storage(tensor)
    if storage is None:
        return None
    return storage, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


def _alias(torch: Any, tensor: Any) -> Any:
    """The same memory as a plain tensor, with no autograd graph behind it."""
    with torch.inference_mode(False), torch.no_grad():
        alias = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return alias.set_(
            tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
        )
