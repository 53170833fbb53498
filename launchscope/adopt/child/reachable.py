"""The values that can be reached from some names, each by the shortest way to it."""

from __future__ import annotations

import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from launchscope.runner.child.facts.torch_types import Torch, Value

MOST_VALUES = 20_000
_DEEPEST = 8
_MOST_PARTS = 1_000  # of one container
_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, slice)


class Reachable:
    """`is_persons` says whether a file holds the person's own code: only such modules, classes and
    functions are looked into."""

    def __init__(self, torch: Torch, is_persons: Callable[[str], bool]):
        self._torch, self._is_persons = torch, is_persons
        self._known: dict[int, Value] = {}  # kept alive, so that no other object gets their id

    def leaves(self, roots: Mapping[str, Value]) -> list[tuple[str, Value]]:
        """Plain values and tensors, and the kinds of all others, by how code would name them."""
        found: list[tuple[str, Value]] = []
        waiting = deque((name, roots[name], 0) for name in sorted(roots))
        while waiting and len(found) < MOST_VALUES:
            path, value, depth = waiting.popleft()
            if isinstance(value, (*_PLAIN, self._torch.Tensor)) or is_array(value):
                found.append((path, value))
            elif id(value) not in self._known:
                self._known[id(value)] = value
                found.append((path, _kind(value)))
                if depth < _DEEPEST:
                    parts = self._parts(value)
                    waiting.extend((f"{path}{name}", part, depth + 1) for name, part in parts)
        return found

    def _parts(self, value: Value) -> Iterable[tuple[str, Value]]:
        if isinstance(value, Mapping):
            return _items(value)
        if isinstance(value, list | tuple | deque):
            return ((f"[{at}]", part) for at, part in zip(range(_MOST_PARTS), value))
        if isinstance(value, types.FunctionType | types.MethodType):
            return self._of_function(value)
        if isinstance(value, type):
            return self._of_class(value)
        if isinstance(value, types.ModuleType):
            file = getattr(value, "__file__", None)
            return _attributes(vars(value)) if file and self._is_persons(file) else ()
        if hasattr(type(value), "__next__") and not self._is_of_person(type(value)):
            return ()  # what it has ready counts when it is drawn
        space = getattr(value, "__dict__", None)
        own = () if not isinstance(space, dict) else _attributes(space)
        return [*own, *self._of_class(type(value), ".__class__")]

    def _of_function(self, value: Any) -> Iterator[tuple[str, Value]]:
        if isinstance(value, types.MethodType):
            yield ".__self__", value.__self__
            return
        if self._is_persons(value.__code__.co_filename):
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or ()):
                if cell != types.CellType():
                    yield f".<{name}>", cell.cell_contents

    def _of_class(self, kind: type, path: str = "") -> Iterator[tuple[str, Value]]:
        """What the person's own class holds beside its methods."""
        if (id(kind) in self._known and path) or not self._is_of_person(kind):
            return
        self._known[id(kind)] = kind
        for name, value in _attributes(dict(vars(kind))):
            if not callable(value) and not hasattr(type(value), "__get__"):
                yield f"{path}{name}", value

    def _is_of_person(self, kind: type) -> bool:
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        return file is not None and self._is_persons(file)


def _items(value: Mapping[Value, Value]) -> Iterator[tuple[str, Value]]:
    for at, key in zip(range(_MOST_PARTS), list(value)):
        named = isinstance(key, str | int | float | bool | tuple)
        yield f"[{key!r}]" if named else f"[key {at}]", value[key]


def _attributes(space: Mapping[Any, Value]) -> Iterator[tuple[str, Value]]:
    for name in sorted(key for key in space if isinstance(key, str)):
        if not (name.startswith("__") and name.endswith("__")):
            yield f".{name}", space[name]


def is_array(value: Value) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "dtype")


def _kind(value: Value) -> str:
    """The class, and how many parts a container has."""
    name = type(value).__qualname__
    sized = isinstance(value, list | tuple | set | frozenset | dict | deque)
    return f"<{name} of {len(value)}>" if sized else f"<{name}>"
