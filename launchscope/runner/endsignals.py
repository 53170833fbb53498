"""The signals that ask a process to end, and the child that is not to outlive its parent."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

_PR_SET_PDEATHSIG = 1


class EndSignals:
    """Inside the `with` block SIGTERM and SIGHUP are kept in `caught` and end nothing.

    Only the first counts: a batch system and `timeout` send theirs twice, to the process and
    to its group. What was ignored before, as under nohup, stays so.
    """

    def __init__(self) -> None:
        self.caught: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> EndSignals:
        if threading.current_thread() is threading.main_thread():  # Python allows no other
            for name in ("SIGTERM", "SIGHUP"):
                number = getattr(signal, name, None)
                if number is None or signal.getsignal(number) in (signal.SIG_IGN, None):
                    continue
                self._before[number] = signal.signal(number, self._catch)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if self.caught is None:
            self.caught = number


def end_with(parent: int) -> None:
    """On Linux, ask for a SIGTERM once `parent`, whose main thread started us, is gone.

    For a parent that is killed outright and cannot end its child. Asked from here, as between
    fork and exec no Python may safely run; processes that the script starts do not inherit it.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(Exception):  # an interpreter without ctypes
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it went before we asked
            os.kill(os.getpid(), signal.SIGTERM)
