"""The signals that ask a process to end, and the child that must not outlive its parent."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

_PR_SET_PDEATHSIG = 1
# Stops a child where Ctrl-C is ignored. Nothing else is likely to send it, and unlike SIGTERM
# neither scripts nor multiprocessing give it a meaning.
_INSTEAD_OF_CTRL_C = getattr(signal, "SIGRTMAX", 0) - 3


class EndSignals:
    """Inside the `with` block the first of these signals is kept in `caught` and ends nothing.

    Batch systems and `timeout` send theirs twice, to the process and to its group. Signals that
    were ignored before (under nohup) stay ignored.
    """

    def __init__(self, *names: str) -> None:
        self.caught: int | None = None
        self._names = names or ("SIGTERM", "SIGHUP")
        self._before: dict[int, Any] = {}

    def __enter__(self) -> EndSignals:
        if threading.current_thread() is threading.main_thread():  # Python allows no other
            for name in self._names:
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


def interrupt_signal() -> int:
    """The signal that stops a child of this process as Ctrl-C would.

    Shells start background jobs with SIGINT ignored, and children inherit that.
    """
    ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    return _INSTEAD_OF_CTRL_C if ignored and _INSTEAD_OF_CTRL_C > 0 else signal.SIGINT


def raise_on_interrupt(number: int | None) -> None:
    """In a child: `number`, from `interrupt_signal`, raises KeyboardInterrupt from now on.

    A process that ignores Ctrl-C goes on ignoring it: the terminal's is not for the background.
    """
    if number is not None and number != signal.SIGINT:
        signal.signal(number, signal.default_int_handler)


def end_with(parent: int) -> None:
    """On Linux: request a SIGTERM for when `parent`, whose main thread started us, is gone.

    A parent that is killed cannot end its child. The child requests it because no Python may
    safely run between fork and exec. Processes that the script starts do not inherit it.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(Exception):  # an interpreter without ctypes
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it ended before the request
            os.kill(os.getpid(), signal.SIGTERM)
