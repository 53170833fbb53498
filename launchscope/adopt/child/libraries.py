"""What the person's code gives to libraries other than torch: loggers, trackers, plots."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from launchscope.runner.child.facts.source_lines import Owner, owned_file
from launchscope.runner.child.facts.torch_types import Torch, Value

_MOST_CALLS = 20_000  # of one run
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

    def _on_call(self, frame: FrameType, event: str, arg: Any) -> None:
        caller, code = frame.f_back, frame.f_code
        if event != "call" or caller is None or self._calls >= _MOST_CALLS:
            return
        if owned_file(code.co_filename).owner not in (Owner.LIBRARY, Owner.PYTHON):
            return
        if owned_file(caller.f_code.co_filename).owner is not Owner.PERSON:
            return
        if code.co_filename.startswith("<"):  # generated: a dataclass, a named tuple
            return
        self._calls += 1
        kinds = (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS)
        more = sum(bool(code.co_flags & kind) for kind in kinds)
        count = code.co_argcount + code.co_kwonlyargcount + more
        called = getattr(code, "co_qualname", code.co_name)  # qualified from Python 3.11 on
        found: list[tuple[str, Value]] = []
        for name in code.co_varnames[:count]:
            self._add(f"{called}({name})", frame.f_locals.get(name), found)
        self._note(found)

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
