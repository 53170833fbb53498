"""What each line of a function did in one call: a public value, by which `adopt` decides."""

from __future__ import annotations

import contextlib
import sys
import types
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from torch.utils._python_dispatch import _disable_current_modes

from .arguments import Tensor, address, version
from .reach import Codes, Reach, Values, names_in


@dataclass(frozen=True)
class LineRecord:
    """One line, over all times that it ran in the call."""

    file: str
    line: int
    operations: int  # of torch
    host_reads: int  # values or shapes of results that were read from the GPU
    # What changed, by how it is reached: Python values, tensors that were written to, names that
    # hold another tensor, and tensors with another `.grad`.
    values: frozenset[str]
    written: frozenset[str]
    rebound: frozenset[str]
    gradients: frozenset[str]
    # Globals, as "module.name", variables of closures and attributes that code read which ran.
    globals: frozenset[str]
    closures: frozenset[str]
    attributes: frozenset[str]


class _State:
    """What a frame can reach between two of its lines."""

    def __init__(self, codes: Codes, frame: types.FrameType):
        reach = Reach(codes, [(k, v) for k, v in frame.f_locals.items() if not k.startswith("__")])
        self._values = Values(reach)
        self._tensors = [(t, label, version(t), _grad(t)) for t, label in reach.tensors.values()]

    def changes(self, written: set[int]) -> dict[str, set[str]]:
        held = self._tensors
        rebound = {label for _, _, label, _ in self._values.rebound()}
        changed = {n for t, n, v, _ in held if version(t) != v or address(t) in written}
        return {
            "values": set(self._values.changed()) - rebound,
            "written": changed,
            "rebound": rebound,
            "gradients": {n for t, n, _, gradient in held if _grad(t) != gradient},
        }


def _grad(tensor: Tensor) -> tuple[int, int]:
    gradient = tensor.grad if tensor.is_leaf else None
    return id(gradient), version(gradient)


class LineRecorder:
    """Follows the lines of the frames that run `code`; others tell what happens in between. A step
    that is no function has none."""

    def __init__(self, code: Any, codes: Codes):
        self._code, self._codes = code, codes
        self._sets: dict[int, dict[str, set[str]]] = {}
        self._counts: dict[tuple[int | None, str], int] = defaultdict(int)
        self._line: int | None = None
        self._state: _State | None = None
        self._written: set[int] = set()

    def records(self) -> tuple[LineRecord, ...]:
        sets = [f.name for f in fields(LineRecord)][4:]
        return tuple(
            LineRecord(
                self._code.co_filename,
                line,
                self._counts[line, "operations"],
                self._counts[line, "host_reads"],
                *(frozenset(seen[name]) for name in sets),
            )
            for line, seen in sorted(self._sets.items())
        )

    @contextlib.contextmanager
    def tracing(self) -> Iterator[None]:
        previous = sys.gettrace()
        sys.settrace(lambda frame, *_: self._on_line if frame.f_code is self._code else None)
        try:
            yield
        finally:
            sys.settrace(previous)

    def _on_line(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        if event in ("line", "return"):
            with _disable_current_modes():
                if self._line is not None and self._state is not None:
                    for name, labels in self._state.changes(self._written).items():
                        self._sets[self._line][name] |= labels
                self._line, self._state, self._written = None, None, set()
                if event == "line":
                    self._line = frame.f_lineno
                    self._sets.setdefault(frame.f_lineno, defaultdict(set))
                    self._state = _State(self._codes, frame)
        return self._on_line

    def note_operation(self, written: set[int], *tensors: list[Tensor]) -> None:
        self._written |= written
        self.count("operations")

    def count(self, what: str) -> None:
        self._counts[self._line, what] += 1

    def note_call(self, code: types.CodeType, space: dict[str, Any]) -> None:
        if self._line is not None and code is not self._code:
            names, seen, module = names_in(code), self._sets[self._line], space.get("__name__")
            seen["globals"].update(f"{module}.{n}" for n in names.of_globals.intersection(space))
            seen["attributes"].update(names.read - names.of_globals)
            seen["closures"].update(code.co_freevars)
