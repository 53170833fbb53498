"""Values as JSON data and back, with the standard library alone: msgspec stays out of the child."""

from __future__ import annotations

import types
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Dataclasses, dicts and sequences as JSON data whose texts are valid Unicode: bytes of a path
    that Python cannot decode are lone surrogates, which JSON readers may refuse."""
    if isinstance(value, str):
        return value if value.isascii() else _valid(value)
    if isinstance(value, dict):
        return {to_plain(key): to_plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(entry) for entry in value]
    if is_dataclass(value):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    return value


def _valid(text: str) -> str:
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # a surrogate that stands for no byte
        return text.encode("utf-8", "backslashreplace").decode("utf-8")


def from_plain(kind: type[T], value: Any) -> T:
    """The value of this type that JSON data was made from; unknown fields are ignored.

    It may hold dataclasses, tuples, dicts and `X | None`, as the values of the model do. Raises
    KeyError, TypeError or ValueError for data of another form.
    """
    return cast("T", _converted(kind, value))


def _converted(kind: Any, value: Any) -> Any:
    if isinstance(kind, type) and is_dataclass(kind):
        known = {name: hint for name, hint in get_type_hints(kind).items() if name in value}
        return kind(**{name: _converted(hint, value[name]) for name, hint in known.items()})
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        inner = next(one for one in arguments if one is not type(None))
        return None if value is None else _converted(inner, value)
    if origin is tuple and arguments[-1] is Ellipsis:
        return tuple(_converted(arguments[0], entry) for entry in value)
    if origin is tuple:
        return tuple(map(_converted, arguments, value))
    if origin is dict:
        return {key: _converted(arguments[1], entry) for key, entry in value.items()}
    return value
