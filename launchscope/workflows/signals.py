"""Signals that end a command: its temporary files go first, then it ends with an error."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from launchscope.errors import MeasureError
from launchscope.runner.protocol.signals import EndSignals

_may_raise = True  # no signal has ended the command so far


class TerminationSignal(KeyboardInterrupt):
    """SIGTERM or SIGHUP came. What cleans up after Ctrl-C cleans up after these too."""

    def __init__(self, number: int):
        super().__init__()
        self.number = number


class _RaisingSignals(EndSignals):
    """The first signal raises TerminationSignal."""

    def _catch(self, number: int, frame: FrameType | None) -> None:
        global _may_raise
        if _may_raise:
            _may_raise = False
            raise TerminationSignal(number)


def exit_code_of(error: KeyboardInterrupt) -> int:
    """128 + the number of the signal, as in a shell."""
    return 128 + (error.number if isinstance(error, TerminationSignal) else signal.SIGINT)


@contextlib.contextmanager
def ends_on_signals() -> Iterator[None]:
    """Around a command: SIGTERM, SIGHUP and Ctrl-C end it as a MeasureError. While a script runs
    the runner handles them."""
    global _may_raise
    _may_raise = True
    try:
        with _RaisingSignals():
            yield
    except KeyboardInterrupt as error:
        # typer would turn it into an exit code without a message.
        raise MeasureError("interrupted", exit_code=exit_code_of(error)) from None


def ignore_further_signals() -> None:
    """After a signal that the runner handled: from now on only Ctrl-C cuts the report short:
    batch systems and `timeout` signal twice, the process and its group."""
    global _may_raise
    _may_raise = False


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Delays signals to the end of the block, where the first of them is raised again."""
    with EndSignals("SIGINT", "SIGTERM", "SIGHUP") as signals:
        yield
    if signals.caught is not None:
        signal.raise_signal(signals.caught)
