"""The console of the command that is running, shared by the commands and the error boundary."""

from __future__ import annotations

from launchscope.cli.console import Console

_current: Console | None = None


def console() -> Console:
    """The console of this run; made at first use."""
    global _current
    if _current is None:
        _current = Console.of_process()
    return _current


def new_console() -> Console:
    """A fresh console for a new run of main()."""
    global _current
    _current = None
    return console()
