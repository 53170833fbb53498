"""Modules of the script: their mode, the shapes of their inputs, and names that stay the same."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType, ModuleType

from launchscope.model import TensorShape
from launchscope.runner.child.plain_values import (
    computes_itself,
    loaded_torch,
    parts_of,
    shape_of,
    sizes_of,
)
from launchscope.runner.child.torch_types import Args, Kwargs, Module, Tensor, Torch, Value

_MOST_TENSORS = 64
# Of the objects whose attributes are looked into, and what none of them is.
_MOST_PARTS = 1_000
_NO_INPUTS = type, ModuleType, FunctionType, MethodType


def training_flag(module: Module) -> Callable[[], bool]:
    """Reads the mode of a module."""
    if isinstance(module, loaded_torch().jit.ScriptModule):  # it is not in Python's dictionary
        return lambda: bool(getattr(module, "training", False))  # a frozen one has none
    attributes = module.__dict__
    return lambda: attributes.get("training") is not False


def in_training(module: Module | None) -> bool:
    """The mode of a module; True for what has no mode, such as a compiled function."""
    return module is None or training_flag(module)()


def is_weighted(module: Module) -> bool:
    """Whether the module holds a parameter, at any depth."""
    return next(module.parameters(), None) is not None


def input_shapes(torch: Torch, args: Args, kwargs: Kwargs) -> tuple[TensorShape, ...]:
    """Of the tensors that a forward gets, also in containers and in attributes of objects, such as
    a cache or a batch of graphs; 64 at most.

    Those whose class would have to be asked for the shape are left out.
    """
    tensors = (t for t in _tensors_below(torch, (args, kwargs)) if _has_shape(torch, t))
    return tuple(map(shape_of, itertools.islice(tensors, _MOST_TENSORS)))


def _tensors_below(torch: Torch, value: Value) -> Iterator[Tensor]:
    left, seen = [value], set[int]()
    while left and len(seen) < _MOST_PARTS:
        part = left.pop()
        if isinstance(part, torch.Tensor):
            yield part
        elif id(part) not in seen and not isinstance(part, (*_NO_INPUTS, torch.nn.Module)):
            seen.add(id(part))
            left += reversed(parts_of(part))


def cache_class(args: Args, kwargs: Kwargs) -> str | None:
    """The class of the key-value cache of transformers that a forward gets; None without one."""
    library = sys.modules.get("transformers.cache_utils")
    kind = None if library is None else vars(library).get("Cache")
    if type(kind) is not type:
        return None
    return next((type(v).__name__ for v in (*args, *kwargs.values()) if isinstance(v, kind)), None)


def main_input(torch: Torch, args: Args, kwargs: Kwargs) -> TensorShape | None:
    """The first tensor that a forward gets directly; None if it gets none.

    As above, only one that has a shape without its class.
    """
    values = (*args, *kwargs.values())
    tensors = (value for value in values if isinstance(value, torch.Tensor))
    return next((shape_of(t) for t in tensors if _has_shape(torch, t)), None)


def _has_shape(torch: Torch, tensor: Value) -> bool:
    """Whether it has a shape that takes no code of the script: a class of torch (DTensor, nested)
    may run. To read a size that torch.export traces as a symbol would make it a constant."""
    if not computes_itself(torch, tensor):
        return True
    of_torch = type(tensor).__module__.startswith("torch.")
    return of_torch and all(type(size) is int for size in sizes_of(tensor))


class ObjectKeys:
    """Names modules or optimizers `Linear@0` and so on, in the order of the calls; keeps none of
    them alive."""

    def __init__(self) -> None:
        # By id: the script's own `__hash__` and `__eq__` are not asked.
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

    def alive(self) -> Alive:
        """Those that are there now."""
        return Alive([thing for thing, _ in self._keys.values()])


class Alive:
    """Iterates over those of some objects that the script still has; keeps none of them alive."""

    def __init__(self, references: list[weakref.ref[Value]]):
        self._references = references

    def __iter__(self) -> Iterator[Value]:
        found = (reference() for reference in self._references)
        return (thing for thing in found if thing is not None)
