"""What a graph depends on beside its arguments, as it was. Asking whether it still holds happens in
each call, so it compares in C."""

from __future__ import annotations

import gc
import operator
from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .arguments import Same, Tensor, address, gradient_of, is_plain, memory
from .reach import Reach, Values

Optimizer = torch.optim.Optimizer
Bound = Collection[tuple[int, str]]

_requires_grad = operator.attrgetter("requires_grad")
_description = operator.attrgetter("shape", "requires_grad")
# In torch with CUDA, for its own graphs: whether tensors are at these addresses, asked in C++.
_all_at: Callable[..., bool] | None = getattr(torch._C, "_tensors_data_ptrs_at_indices_equal", None)
_END = (object(),)  # behind a table: what moves from the end of one to the next is seen


class _DifferentError(Exception):
    """Two tensors that are not the same object were about to be compared."""


class _NoComparison(TorchFunctionMode):
    """Inside, comparing tensors by value, which would run on the GPU, is an error."""

    def __torch_function__(self, *_: Any) -> Any:
        raise _DifferentError


_no_comparison = _NoComparison()


def by_identity(values: Iterable[Any]) -> list[Any]:
    """For `identical`: what Python would compare by value gets a `Same`."""
    plain: Any = object.__eq__
    return [v if isinstance(v, Tensor) or type(v).__eq__ is plain else Same(v) for v in values]


def identical(now: list[Any], then: list[Any]) -> bool:
    """Whether these are the same objects; `then` is from `by_identity`. Python passes over equal
    parts of two lists twenty times as fast as `map` calls `is`."""
    try:
        with _no_comparison:
            return now == then
    except _DifferentError:
        return False


class Guard:
    """`alive` asks for the tensors and containers of models and optimizers: once they are others,
    the graph can never serve again. Values of the script may come back."""

    def __init__(self, reach: Reach, inside: list[Optimizer], moving: set[Any], bound: Bound):
        """`bound` are names that the step binds to new tensors: what it gives, not conditions."""
        self.modules = list(reach.modules.values())
        self.optimizers = inside
        # One that is not enabled passes everything on, and has no state.
        self.scalers = [scaler for scaler in reach.scalers if scaler.is_enabled()]
        self.bound = [reach.slots[at] for at in bound if at in reach.slots]
        self.names = {id(tensor): label for tensor, label in reach.tensors.values()}
        settings = [
            (vars(scaler), name, f"GradScaler.{name}")
            for scaler in self.scalers
            for name in vars(scaler)
            if name != "_per_optimizer_states"
        ]
        self.values = Values(reach, bound, [*settings, *self._settings(reach, moving)])
        self._owners = [part for o in inside for part in (o.state, o.param_groups)]
        tables: list[Any] = [
            t for m in self.modules for t in (m._parameters, m._buffers, m._modules)
        ]
        tables += [group["params"] for o in inside for group in o.param_groups]
        tables += [*self._owners, *(state for o in inside for state in o.state.values())]
        self._tables = [part for table in tables for part in (table, _END)]
        self._parts = by_identity(gc.get_referents(*self._tables))
        self._collect_tensors(reach)

    def _settings(self, reach: Reach, moving: set[Any]) -> Iterable[tuple[Any, str, str]]:
        """Hyperparameters that a graph has as constants."""
        for optimizer in self.optimizers:
            kind = type(optimizer).__name__
            for number, group in enumerate(optimizer.param_groups):
                for key, value in group.items():
                    if (id(optimizer), number, key) in moving:
                        continue
                    if key == "params" or is_plain(value) or isinstance(value, Tensor):
                        yield group, key, f"{key} of {kind}"
            for key in reach.names.intersection(vars(optimizer)):
                if is_plain(vars(optimizer)[key]):
                    yield vars(optimizer), key, f"{kind}.{key}"

    def _collect_tensors(self, reach: Reach) -> None:
        found = [tensor for tensor, _ in reach.tensors.values()]
        self.parameters = [
            t for t in found if isinstance(t, torch.nn.Parameter) or (t.is_leaf and t.requires_grad)
        ]
        self.buffers = [b for m in self.modules for b in m._buffers.values() if b is not None]
        tables = [t for o in self.optimizers for t in (*o.state.values(), *o.param_groups)]
        state = [t for table in tables for t in table.values() if isinstance(t, Tensor)]
        self._plain = [v for v in self.values.held if isinstance(v, Tensor)]
        self._flags_then = self._flags()
        located = [t for t in (*self.parameters, *self.buffers, *state, *self._plain) if address(t)]
        self.tensors = list(map(memory, located))
        self._pointers = list(map(Tensor.data_ptr, self.tensors))
        self._numbers = list(range(len(self.tensors)))

    def alive(self) -> bool:
        """The garbage collector's function is the fastest way into thousands of dictionaries: it
        gives their values in order, and a list's parts."""
        owners = [part for o in self.optimizers for part in (o.state, o.param_groups)]
        return (
            all(map(operator.is_, owners, self._owners))
            and identical(gc.get_referents(*self._tables), self._parts)
            and self._in_place()
        )

    def _in_place(self) -> bool:
        if _all_at is not None:
            return _all_at(self.tensors, self._pointers, self._numbers)
        return list(map(Tensor.data_ptr, self.tensors)) == self._pointers

    def _flags(self) -> list[Any]:
        return [*map(_requires_grad, self.parameters), *map(_description, self._plain)]

    def holds(self) -> bool:
        """Whether nothing that the graph depends on is different."""
        return self.values.hold() and self._flags() == self._flags_then and self.alive()

    def difference(self) -> str | None:
        """The name of something that has changed; None if nothing has."""
        for label in self.values.changed():
            return label
        if self._flags() != self._flags_then:
            return "requires_grad or the shape of a tensor"
        return None if self.alive() else "the tensors of the model or the optimizer"

    def name_of(self, label: str | None) -> str:
        """By which code reads and stores what has this label."""
        return next((key for _, key, other in self.values.slots if other == label), label or "")


class Gradients:
    """Which gradients a call of a kind finds, makes and reads."""

    def __init__(self, parameters: list[Tensor]):
        self._parameters = parameters
        self.used = True
        self.makes: frozenset[int] = frozenset()  # indices of those that the step replaces
        self.reads: set[int] = set()  # indices of those whose values at entry it reads
        self.carried: dict[int, Tensor] = {}  # read, then replaced: the graph gets copies
        self._missing = [g is None for g in self.now()]
        self._pointers: dict[int, int] = {}  # of those that the graph adds to

    def now(self) -> list[Any]:
        return list(map(gradient_of, self._parameters))

    def see(self, before: list[Any], backward: bool, read: Collection[int]) -> None:
        """After a watched call that read the memory at these addresses."""
        self.reads |= {i for i, g in enumerate(before) if g is not None and address(g) in read}
        changes = enumerate(zip(self.now(), before))
        self.makes = frozenset(i for i, (g, old) in changes if g is not old)
        self.used = backward or bool(self.reads) or bool(self.makes)

    def captured(self, entry: list[Any]) -> None:
        read = {i: memory(entry[i]) for i in self.reads if entry[i] is not None}
        self.carried = {i: g for i, g in read.items() if i in self.makes}
        self._pointers = {i: g.data_ptr() for i, g in read.items() if i not in self.makes}

    def hold(self, now: list[Any]) -> bool:
        """Whether gradients are None where they were, and at the addresses that the graph reads, or
        like those that it gets copies of."""
        return (
            [g is None for g in now] == self._missing
            and all(memory(now[i]).data_ptr() == at for i, at in self._pointers.items())
            and all(_form(memory(now[i])) == _form(kept) for i, kept in self.carried.items())
        )


def _form(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device
