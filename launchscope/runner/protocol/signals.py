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
# Asks a child to stop where Ctrl-C is ignored. Nothing else is likely to send it, and unlike
# SIGTERM it is not what a script, or multiprocessing for its workers, gives a meaning to.
_INSTEAD_OF_CTRL_C = getattr(signal, "SIGRTMAX", 0) - 3


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


def asking_signal() -> int:
    """The signal at which a child of this process stops as at Ctrl-C.

    Shells start what runs in the background with SIGINT ignored, and children inherit that.
    """
    ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    return _INSTEAD_OF_CTRL_C if ignored and _INSTEAD_OF_CTRL_C > 0 else signal.SIGINT


def stop_when_asked(number: int) -> None:
    """In a child: `number`, from `asking_signal`, raises KeyboardInterrupt from now on.

    What is deaf to Ctrl-C stays deaf to it: the terminal's is not for the background.
    """
    if number != signal.SIGINT:
        signal.signal(number, signal.default_int_handler)


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
