"""When a step computes a value that its patch computes in front of the call.

Such a value is passed as `value if test else None` where the step would not always compute it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager


class Conditions:
    """The tests around what is visited in a step, and those of each value, by its code."""

    def __init__(self) -> None:
        self._around: list[str | None] = []
        self._of: dict[str, set[tuple[str, ...]]] = {}  # all tests of one of these have to hold

    @contextmanager
    def under(self, test: str | None) -> Iterator[None]:
        """What is visited meanwhile only runs if a test holds: its code, "" for what always runs,
        None for a test that cannot be made in front of the call."""
        if test == "":
            yield
            return
        self._around.append(test)
        try:
            yield
        finally:
            self._around.pop()

    @property
    def any(self) -> bool:
        return bool(self._around)

    @property
    def unknown(self) -> bool:
        """Whether one of the tests cannot be made in front of the call."""
        return None in self._around

    def always(self, code: str) -> bool:
        """Whether the step is known to compute a value in each call."""
        return () in self._of.get(code, ())

    def guarded(self, node: ast.expr, code: str) -> str:
        """The code of a value that is also needed here, computed only where the step would."""
        found = self._of.setdefault(code, set())
        found.add(tuple(filter(None, self._around)))
        alone = {tests[0] for tests in found if len(tests) == 1}
        if () in found or any(f"not {test}" in alone for test in alone):
            return code
        code = f"({code})" if isinstance(node, ast.IfExp) else code
        return f"{code} if {' or '.join(sorted(map(' and '.join, found)))} else None"
