"""The signals that ask a process to end."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

# They ask a process to end.
ENDING = tuple(n for name in ("SIGINT", "SIGTERM", "SIGHUP") if (n := getattr(signal, name, None)))
# Stops a child where Ctrl-C is ignored. Nothing else is likely to send it, and unlike SIGTERM
# neither scripts nor multiprocessing give it a meaning.
_INSTEAD_OF_CTRL_C = getattr(signal, "SIGRTMAX", 0) - 3


class EndSignals:
    """Inside the `with` block the first of these signals is kept in `caught` and ends nothing, for
    batch systems and `timeout` send theirs twice. Signals ignored before (nohup) stay ignored."""

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

    def __exit__(self, *raised: object) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    def _catch(self, number: int, frame: FrameType | None) -> None:
        if self.caught is None:
            self.caught = number


def interrupt_signal() -> int:
    """The signal that stops a child of this process as Ctrl-C would: shells start background jobs
    with SIGINT ignored, and children inherit that."""
    ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    return _INSTEAD_OF_CTRL_C if ignored and _INSTEAD_OF_CTRL_C > 0 else signal.SIGINT


def raise_on_interrupt(number: int | None) -> None:
    """In a child: `number`, from `interrupt_signal`, raises KeyboardInterrupt from now on. A
    process that ignores Ctrl-C still ignores that of the terminal."""
    if number is not None and number != signal.SIGINT:
        signal.signal(number, signal.default_int_handler)
