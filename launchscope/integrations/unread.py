"""A number that a step is given with every call, and usually does not read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Unread:
    """Works like the integer that it holds, and notes whether anything has read it. To a graph it
    is one and the same object in all calls. `isinstance(number, int)` is False."""

    __slots__ = ("held", "was_read")

    def __init__(self) -> None:
        self.held = 0
        self.was_read = False

    def holding(self, number: int) -> Any:
        """What to pass: the number itself, once one has been read."""
        if self.was_read:
            return number
        self.held = number
        return self


def _reading(method: Callable[..., Any]) -> Callable[..., Any]:
    def read(self: Unread, *args: Any) -> Any:
        self.was_read = True
        plain = [arg.held if isinstance(arg, Unread) else arg for arg in args]
        return method(self.held, *plain)

    return read


_OF_ANY_OBJECT = set(dir(object)) - set(vars(int))
for _name in set(dir(int)) - _OF_ANY_OBJECT - {"__new__", "__getattribute__"}:
    _member = getattr(int, _name)
    if callable(_member):
        setattr(Unread, _name, _reading(_member))
    elif _name != "__doc__":
        setattr(Unread, _name, property(_reading(_member.__get__)))
