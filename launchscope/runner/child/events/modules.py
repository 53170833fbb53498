"""Modules of the script: their mode, the shapes of their inputs, and names that stay the same."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator

from launchscope.model import TensorShape
from launchscope.runner.child.facts.plain_values import shape_of, tensors_in
from launchscope.runner.child.facts.torch_types import Args, Kwargs, Module, Torch, Value

_MOST_TENSORS = 64


def is_weighted(module: Module) -> bool:
    """Whether the module holds a parameter, at any depth."""
    return next(module.parameters(), None) is not None


def input_shapes(torch: Torch, args: Args, kwargs: Kwargs) -> tuple[TensorShape, ...]:
    """Of the tensors that a forward gets; 64 at most."""
    tensors = tensors_in(torch, (args, kwargs))
    return tuple(map(shape_of, itertools.islice(tensors, _MOST_TENSORS)))


def main_input(torch: Torch, args: Args, kwargs: Kwargs) -> TensorShape | None:
    """The shape of the first tensor that a forward gets directly; None if it gets none."""
    values = (*args, *kwargs.values())
    return next((shape_of(value) for value in values if isinstance(value, torch.Tensor)), None)


class ObjectKeys:
    """Names modules or optimizers `Linear@0` and so on, in the order of the calls; keeps none of
    them alive. Iterates over those that the script still has, as often as it is asked."""

    def __init__(self) -> None:
        # By id: a module may be of a class without a hash.
        self._keys: dict[int, tuple[weakref.ref[Value], str]] = {}
        self._numbers = itertools.count()

    def key(self, thing: Value) -> str:
        """A name that stays the same."""
        number = id(thing)
        known = self._keys.get(number)
        if known is None:
            reference = weakref.ref(thing, lambda gone: self._keys.pop(number, None))
            known = reference, f"{type(thing).__name__}@{next(self._numbers)}"
            self._keys[number] = known
        return known[1]

    def get(self, key: str) -> Value | None:
        """The one of that name; None if it is gone."""
        return next((thing() for thing, known in self._keys.values() if known == key), None)

    def __iter__(self) -> Iterator[Value]:
        things = (reference() for reference, _ in list(self._keys.values()))
        return (thing for thing in things if thing is not None)
