"""Signals that end a command: its temporary files go first, then it ends with an error."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from launchscope.errors import MeasureError

_may_raise = True  # no signal has ended the command so far


class TerminationSignal(KeyboardInterrupt):
    """SIGTERM or SIGHUP came. What cleans up after Ctrl-C cleans up after these too."""

    def __init__(self, number: int):
        super().__init__()
        self.number = number


def exit_code_of(error: KeyboardInterrupt) -> int:
    """128 + the number of the signal, as in a shell."""
    return 128 + (error.number if isinstance(error, TerminationSignal) else signal.SIGINT)


@contextlib.contextmanager
def ends_on_signals() -> Iterator[None]:
    """Around a command: SIGTERM, SIGHUP and Ctrl-C end it as a MeasureError.

    While a script runs the runner handles them. A signal that was ignored on entry, as under
    nohup, stays ignored.
    """
    global _may_raise
    _may_raise = True
    try:
        with _handled(("SIGTERM", "SIGHUP"), _raise, also_default=True):
            yield
    except KeyboardInterrupt as error:
        # typer would turn it into an exit code without a message.
        raise MeasureError("interrupted", exit_code=exit_code_of(error)) from None


def ignore_further_signals() -> None:
    """After a signal that the runner handled: from now on only Ctrl-C cuts the report short.

    Batch systems and `timeout` send theirs twice, to the process and to its group.
    """
    global _may_raise
    _may_raise = False


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Delays signals to the end of the block, where the first of them is raised again."""
    received: list[int] = []

    def receive(number: int, frame: FrameType | None) -> None:
        received.append(number)

    with _handled(("SIGINT", "SIGTERM", "SIGHUP"), receive, also_default=False):
        yield
    if received:
        signal.raise_signal(received[0])


def _raise(number: int, frame: FrameType | None) -> None:
    global _may_raise
    if _may_raise:
        _may_raise = False
        raise TerminationSignal(number)


@contextlib.contextmanager
def _handled(names: tuple[str, ...], handler: Any, *, also_default: bool) -> Iterator[None]:
    before: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():  # Python allows no other
            for name in names:
                number = getattr(signal, name, None)
                if number is None:
                    continue
                known = signal.getsignal(number)
                if callable(known) or (also_default and known == signal.SIG_DFL):
                    before[number] = known
                    signal.signal(number, handler)
        yield
    finally:
        while before:
            signal.signal(*before.popitem())
