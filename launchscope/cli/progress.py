"""What the runner reports while the script runs, as short lines on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from launchscope.cli.console import Console

if TYPE_CHECKING:
    from launchscope.runner.parent.child_watch import ProgressEvent


class Progress:
    """One line per pass that ended, with its time; a passing line while it is under way.

    The script writes to the same terminal, so nothing is redrawn but the last line.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic):
        self._console = console
        self._clock = clock
        self._began: dict[str, tuple[float, int]] = {}  # when, and how many steps

    def __call__(self, event: ProgressEvent) -> None:
        if event.kind == "run":
            self._console.progress(event.text or f"running {event.name}")
        elif event.kind == "note":
            self._console.note(event.text)
        elif event.kind == "pass_start":
            self._began[event.name] = self._clock(), event.total
            self._console.status(_line(event.label, event.total))
        elif event.kind == "pass_progress":
            self._console.status(f"{_line(event.label, event.total)} {event.done}/{event.total}")
        else:
            now = self._clock()
            began, total = self._began.pop(event.name, (now, event.total))
            said = event.text or f"{now - began:.1f} s"
            self._console.progress(f"{_line(event.label, total)}, {said}")


def _line(label: str, steps: int) -> str:
    return f"{label}, {steps} step{'' if steps == 1 else 's'}" if steps else label
