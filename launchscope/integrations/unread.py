"""A number that a step is given with every call, and usually does not read."""

from __future__ import annotations

import operator
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


def _operation(name: str) -> Callable[..., Any]:
    """That of `operator` asks the other operand as well."""
    operators = vars(operator)
    straight = name.replace("__r", "__", 1)
    if name not in operators and straight in operators:
        return lambda held, other: operators[straight](other, held)
    return operators.get(name) or getattr(int, name)  # type: ignore[no-any-return]


_OF_ANY_OBJECT = set(dir(object)) - set(vars(int))
for _name in set(dir(int)) - _OF_ANY_OBJECT - {"__new__", "__getattribute__", "__doc__"}:
    if callable(_member := getattr(int, _name)):
        setattr(Unread, _name, _reading(_operation(_name)))
    else:
        setattr(Unread, _name, property(_reading(_member.__get__)))
