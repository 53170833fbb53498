"""Methods of single objects that are replaced while a training lasts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class Replacements:
    """`undo` puts back all that `put` has replaced."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def put(self, owner: Any, name: str, function: Callable[..., Any]) -> None:
        """`owner.name` becomes `function`; to those who look at its signature it is as before."""
        original, own = getattr(owner, name), name in vars(owner)
        setattr(owner, name, functools.wraps(original)(functools.partial(function)))
        undo = functools.partial(delattr, owner, name)
        self._undo.append(functools.partial(setattr, owner, name, original) if own else undo)

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()


def nothing(*_: Any, **__: Any) -> None: ...


def overrides(owner: Any, base: type, name: str) -> bool:
    return getattr(type(owner), name) is not getattr(base, name)
