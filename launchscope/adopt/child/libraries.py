"""What the person's code gives to libraries other than torch: loggers, trackers, plots."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import CodeType, FrameType

from launchscope.runner.child.facts.source_lines import Owner, owned_file
from launchscope.runner.child.facts.torch_types import Torch, Value

_MOST_CALLS = 20_000  # of one run
_DEEPEST = 3  # of nested arguments


class LibraryCalls:
    """Each Python function of a library that the person's code calls directly, with its arguments;
    `note` gets the name of the function and of the argument with a value."""

    def __init__(self, torch: Torch, note: Callable[[list[tuple[str, Value]]], None]):
        self._torch, self._note = torch, note
        self._calls = 0
        self._is_of_library: dict[CodeType, bool] = {}

    def on_call(self, frame: FrameType) -> None:
        """Of a function of Python that begins."""
        code = frame.f_code
        if code not in self._is_of_library:
            is_generated = code.co_filename.startswith("<")  # a dataclass, a named tuple
            owner = owned_file(code.co_filename).owner
            self._is_of_library[code] = owner in (Owner.LIBRARY, Owner.PYTHON) and not is_generated
        if not self._is_of_library[code] or self._calls >= _MOST_CALLS:
            return
        caller = frame.f_back
        if caller is None or owned_file(caller.f_code.co_filename).owner is not Owner.PERSON:
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
