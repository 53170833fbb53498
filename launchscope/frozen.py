"""`dataclass(frozen=True)` as in the standard library, defined in a twentieth of the time.

The standard library writes and compiles six methods for every class. That takes half a millisecond:
together a third of the time that `launchscope report` needs to start, and the child in the person's
process defines values of the model, too. Here all classes share their methods. A call takes about a
microsecond longer (six fields), so what a timed step may call uses the standard library's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError
from typing import TYPE_CHECKING, Any, NoReturn


def _init(self: Any, *args: Any, **named: Any) -> None:
    kind = type(self)
    given = dict(zip(kind.__match_args__, args))
    if len(args) > len(given) or given.keys() & named.keys():
        raise TypeError(f"{kind.__qualname__}() got more values than fields, or two for one")
    given.update(named)
    for name, field in kind.__dataclass_fields__.items():  # reports are written in this order
        if name in given:
            value = given.pop(name)
        elif field.default_factory is not MISSING:
            value = field.default_factory()
        elif field.default is not MISSING:
            value = field.default
        else:
            raise TypeError(f"{kind.__qualname__}() got no value for {name!r}")
        self.__dict__[name] = value
    if given:
        raise TypeError(f"{kind.__qualname__}() got values for no field: {', '.join(given)}")


def _values(self: Any) -> tuple[Any, ...]:
    return tuple([getattr(self, name) for name in self.__match_args__])


def _repr(self: Any) -> str:
    shown = map("{}={!r}".format, self.__match_args__, _values(self))
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _eq(self: Any, other: object) -> bool:
    return _values(self) == _values(other) if type(self) is type(other) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_values(self))


def _frozen(self: object, name: str, *value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to or delete field {name!r}")


_IDENTITY = {"__eq__": _eq, "__hash__": _hash}
_METHODS = {"__init__": _init, "__repr__": _repr, "__setattr__": _frozen, "__delattr__": _frozen}
_without_methods = dataclasses.dataclass(init=False, repr=False, eq=False)


def _dataclass(*, frozen: bool, eq: bool = True) -> Callable[[type], type]:
    assert frozen

    def complete(kind: type) -> type:
        for name, method in {**_METHODS, **(_IDENTITY if eq else {})}.items():
            if name not in vars(kind):
                setattr(kind, name, method)
        kind.__doc__ = kind.__doc__ or kind.__name__  # or the standard library would write one
        return _without_methods(kind)

    return complete


if TYPE_CHECKING:  # they know what the standard library's means
    from dataclasses import dataclass as dataclass
else:
    dataclass = _dataclass
