"""A command that is ended from outside: what it has on disk goes, then it says so and ends."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from launchscope.errors import MeasureError

_first_only = True  # no signal to end was heard so far


class TerminationSignal(KeyboardInterrupt):
    """SIGTERM or SIGHUP came. Whoever tidies up after Ctrl-C does so after these."""

    def __init__(self, number: int):
        super().__init__()
        self.number = number


def exit_code_of(error: KeyboardInterrupt) -> int:
    """As a shell has it: 128 + the number of the signal."""
    return 128 + (error.number if isinstance(error, TerminationSignal) else signal.SIGINT)


@contextlib.contextmanager
def ending() -> Iterator[None]:
    """Around a command: signals that ask for its end raise, and come out as an error of ours.

    The runner has its own way with them while a script runs. What was ignored on entry, as
    under nohup, stays so.
    """
    global _first_only
    _first_only = True
    try:
        with _handled(("SIGTERM", "SIGHUP"), _raise, also_default=True):
            yield
    except KeyboardInterrupt as error:
        # typer would turn it into an exit code without a word.
        raise MeasureError("interrupted", exit_code=exit_code_of(error)) from None


def ignore_further_signals() -> None:
    """A signal was heard elsewhere: from now on only Ctrl-C cuts short what is still to be said.

    Batch systems and `timeout` send theirs twice, to the process and to its group.
    """
    global _first_only
    _first_only = False


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Inside the block no signal ends anything; the first that came does so behind it."""
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        heard.append(number)

    with _handled(("SIGINT", "SIGTERM", "SIGHUP"), hear, also_default=False):
        yield
    if heard:
        signal.raise_signal(heard[0])


def _raise(number: int, frame: FrameType | None) -> None:
    global _first_only
    if _first_only:
        _first_only = False
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
