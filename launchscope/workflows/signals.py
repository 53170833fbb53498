"""Signals that end a command: its temporary files go first, then it ends with an error."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

from launchscope.errors import MeasureError
from launchscope.runner.parent.script_signals import set_handlers

_TERMINATING = ("SIGTERM", "SIGHUP")


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
    """Around a command: SIGTERM, SIGHUP and Ctrl-C end it as a MeasureError. While a script runs
    the runner handles them."""
    before = set_handlers(_end, _TERMINATING)
    try:
        yield
    except KeyboardInterrupt as error:
        # typer would turn it into an exit code without a message.
        raise MeasureError("interrupted", exit_code=exit_code_of(error)) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore_further_signals() -> None:
    """From now on only Ctrl-C cuts the report short: batch systems and `timeout` signal twice, the
    process and its group."""
    set_handlers(signal.SIG_IGN, _TERMINATING)


def _end(number: int, frame: FrameType | None) -> None:
    ignore_further_signals()
    raise TerminationSignal(number)
