"""Notes what one step was given from outside: tensors it did not make, and Python values.

Two steps of one script are then compared: what changed between them is what a captured
step would have to be fed, or would have frozen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from launchscope.runner.hooks import Hooks
from launchscope.runner.opstream import dotted
from launchscope.runner.userlines import user_line

Scalar = bool | int | float | complex | str


@dataclass(frozen=True)
class Call:
    """One dispatched op: `form` tells whether two steps did the same, `scalars` with what."""

    op: str
    form: str
    scalars: tuple[Scalar, ...]
    where: str | None
    in_optimizer: bool


@dataclass
class View:
    """A tensor from outside the step, at its first use. `tensor` aliases its memory.

    `value` is a copy of what the step read, made where it differs from the captured one's
    place; `carried` says that the step before made it, and not from data on the host.
    """

    key: tuple[Any, ...]
    tensor: Any
    value: Any = None
    carried: bool = False
    where: str | None = None


@dataclass
class Witness:
    """Everything noted about one step, in the order of its ops."""

    calls: list[Call] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    made: dict[Any, Any] = field(default_factory=dict)  # storage -> dtype, in order
    from_host: set[Any] = field(default_factory=set)  # of those, filled with data of the host
    written: dict[Any, Any] = field(default_factory=dict)  # storages from outside -> dtype
    unforked: list[str] = field(default_factory=list)  # lines on a stream that does not capture


class Witnessing:
    """How a step is witnessed. `expected`: the captured step; None while that is witnessed.

    `before` is the step before this one, to tell what it handed over. `copy(tensor)` makes the
    copies of inputs, `on_device` says which tensors a kernel works on, `capturing` whether the
    current stream records; None where there is nothing to record.
    """

    def __init__(
        self,
        torch: Any,
        hooks: Hooks,
        on_device: Callable[[Any], bool],
        copy: Callable[[Any], Any],
        expected: Witness | None = None,
        before: Witness | None = None,
        capturing: Callable[[], bool] | None = None,
    ):
        self.witness = Witness()
        self._torch = torch
        self._hooks = hooks
        self._on_device = on_device
        self._copy = copy
        self._expected = expected
        self._before = before
        self._capturing = capturing
        self._seen: set[tuple[Any, ...]] = set()
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
            if key in self._seen or key[0] in self.witness.made:
                continue
            self._seen.add(key)
            self._first_use(key, tensor)

    def _first_use(self, key: tuple[Any, ...], tensor: Any) -> None:
        views, expected = self.witness.views, self._expected
        view = View(key, None)
        if expected is None:
            view.tensor = _alias(self._torch, tensor)
            view.where = user_line(sys._getframe(3))
        elif len(views) < len(expected.views) and expected.views[len(views)].key != key:
            made = self._before.made if self._before is not None else {}
            from_host = self._before.from_host if self._before is not None else ()
            view.carried = key[0] in made and key[0] not in from_host
            view.where = user_line(sys._getframe(3))
            if not view.carried:
                view.value = self._copy(tensor)
        views.append(view)
        self._outside.add(key[0])

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
        for argument, value in _arguments(func, args, kwargs):
            if argument.alias_info is not None and argument.alias_info.is_write:
                self._writes(value, tensors)
        where = user_line(sys._getframe(2)) or self._hooks.backward_where
        if self._capturing is not None and not self._capturing() and where is not None:
            witness.unforked.append(where)
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

    def _writes(self, value: Any, tensors: list[Any]) -> None:
        witness = self.witness
        for tensor in value if isinstance(value, list | tuple) else (value,):
            key = _key(tensor) if isinstance(tensor, self._torch.Tensor) else None
            if key is None or not self._on_device(tensor):
                continue
            if key[0] not in witness.made:
                witness.written[key[0]] = tensor.dtype
            elif any(not self._on_device(other) and other.ndim for other in tensors):
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
    from torch.multiprocessing.reductions import StorageWeakRef

    try:
        storage = StorageWeakRef(tensor.untyped_storage())
        return storage, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()
    except (RuntimeError, NotImplementedError):  # sparse and other tensors without one
        return None


def _alias(torch: Any, tensor: Any) -> Any:
    """The same memory as a plain tensor, with no autograd graph behind it."""
    with torch.inference_mode(False), torch.no_grad():
        alias = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return alias.set_(
            tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
        )
