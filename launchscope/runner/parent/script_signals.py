"""Signals that come to launchscope while a script runs are the script's first."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterable
from types import FrameType
from typing import Any

_ENDING = ("SIGINT", "SIGTERM", "SIGHUP")


def set_handlers(handler: Any, names: Iterable[str]) -> dict[int, Any]:
    """Sets the handler of the signals of these names that are not ignored (nohup); the handlers
    from before."""
    before = {}
    if threading.current_thread() is threading.main_thread():  # Python allows no other
        for number in (getattr(signal, name) for name in names if hasattr(signal, name)):
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, handler)
    return before


class ScriptSignals:
    """In a `with` block the first of these signals is kept in `caught`, given to `child`, and ends
    nothing here; after a second Ctrl-C `at_once` is set."""

    def __init__(self) -> None:
        self.caught: int | None = None
        self.at_once = False
        self._child: subprocess.Popen[bytes] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> ScriptSignals:
        self._before = set_handlers(self._catch, _ENDING)
        return self

    def __exit__(self, *raised: object) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    def follow(self, child: subprocess.Popen[bytes] | None) -> None:
        """From now on signals go to this child, with one that came before it was there."""
        self._child = child
        if child is not None and self.caught is not None:
            child.send_signal(self.caught)

    def _catch(self, number: int, frame: FrameType | None) -> None:
        self.at_once = self.at_once or (number == signal.SIGINT and self.caught is not None)
        if self.caught is None:
            self.caught = number
            if self._child is not None and not (number == signal.SIGINT and _in_foreground()):
                self._child.send_signal(number)


def _in_foreground() -> bool:
    """Whether Ctrl-C in our terminal comes to the script, too, which is in our process group."""
    with contextlib.suppress(OSError):
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
        try:
            return os.tcgetpgrp(terminal) == os.getpgrp()
        finally:
            os.close(terminal)
    return False
