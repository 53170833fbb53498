"""What stays with the module it was put on."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any


class UncopyableHook(partial):  # type: ignore[type-arg]
    """A hook on one of the person's modules; a copy or a pickle of that module is without it."""

    def __reduce__(self) -> tuple[Any, ...]:
        # What stands in its place takes any arguments, does nothing, and needs no launchscope
        # where it is loaded.
        return getattr, (contextlib.nullcontext(), "__exit__")


class UncopyableCall(partial):  # type: ignore[type-arg]
    """A call that goes before a module's own; in a copy or a pickle of it None is in its place."""

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "enter_result")
