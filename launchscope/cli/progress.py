"""The progress of a workflow on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from launchscope.cli.console import Console

if TYPE_CHECKING:
    from launchscope.runner.parent.child_watch import ProgressEvent


class TerminalProgress:
    """One line per pass that ended, with its time; a status line while it runs.

    The script writes to the same terminal, so only the last line is ever redrawn.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic):
        self._console = console
        self._clock = clock
        self._started: dict[str, tuple[float, int]] = {}  # by pass: when, and how many steps

    def on_event(self, event: ProgressEvent) -> None:
        if event.kind == "run":
            self._console.progress(event.text or f"running {event.name}")
        elif event.kind == "note":
            self._console.note(event.text)
        elif event.kind == "pass_start":
            self._started[event.name] = self._clock(), event.total
            self._console.status(_line(event.label, event.total))
        elif event.kind == "pass_progress":
            self._console.status(f"{_line(event.label, event.total)} {event.done}/{event.total}")
        else:
            now = self._clock()
            started, total = self._started.pop(event.name, (now, event.total))
            text = event.text or f"{now - started:.1f} s"
            self._console.progress(f"{_line(event.label, total)}, {text}")

    def on_message(self, text: str) -> None:
        self._console.progress(text)

    def on_status(self, text: str) -> None:
        self._console.status(text)

    def on_note(self, text: str) -> None:
        self._console.note(text)


def _line(label: str, steps: int) -> str:
    return f"{label}, {steps} step{'' if steps == 1 else 's'}" if steps else label
