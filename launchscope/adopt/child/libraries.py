"""What the person's code gives to libraries other than torch: loggers, trackers, plots."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from launchscope.runner.child.facts.code_owner import Owner, owned_file
from launchscope.runner.child.facts.torch_types import Torch, Value

_MOST_CALLS = 1_000  # of one iteration
_DEEPEST = 3  # of nested arguments


class LibraryCalls:
    """Each Python function of a library that the person's code calls directly, with its arguments;
    `note` gets the name of the function and of the argument with a value. A profile function is
    called for each call of the interpreter: the run is not timed."""

    def __init__(self, torch: Torch, note: Callable[[list[tuple[str, Value]]], None]):
        self._torch, self._note = torch, note
        self._calls = 0

    def begin(self) -> None:
        sys.setprofile(self._on_call)

    def end(self) -> None:
        sys.setprofile(None)

    def begin_iteration(self) -> None:
        self._calls = 0

    def _on_call(self, frame: FrameType, event: str, arg: Any) -> None:
        caller = frame.f_back
        if event != "call" or caller is None or self._calls >= _MOST_CALLS:
            return
        if owned_file(frame.f_code.co_filename).owner not in (Owner.LIBRARY, Owner.PYTHON):
            return
        if owned_file(caller.f_code.co_filename).owner is not Owner.PERSON:
            return
        if frame.f_code.co_filename.startswith("<"):  # generated: a dataclass, a named tuple
            return
        self._calls += 1
        code = frame.f_code
        count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4)
        count += bool(code.co_flags & 8)
        found: list[tuple[str, Value]] = []
        for name in code.co_varnames[:count]:
            self._add(f"{_named(code)}({name})", frame.f_locals.get(name), found)
        sys.setprofile(None)
        try:
            self._note(found)
        finally:
            sys.setprofile(self._on_call)

    def _add(self, name: str, value: Value, found: list[tuple[str, Value]], depth: int = 0) -> None:
        if isinstance(value, dict) and depth < _DEEPEST:
            for key, part in list(value.items()):
                self._add(f"{name}[{key!r}]", part, found, depth + 1)
        elif isinstance(value, list | tuple) and depth < _DEEPEST:
            for at, part in enumerate(value):
                self._add(f"{name}[{at}]", part, found, depth + 1)
        elif isinstance(value, bool | int | float | str | self._torch.Tensor):
            found.append((name, value))
        else:
            found.append((name, f"<{type(value).__qualname__}>"))


def _named(code: CodeType) -> str:
    return getattr(code, "co_qualname", code.co_name)  # qualified from Python 3.11 on
