"""Everything launchscope writes to the terminal: reports to stdout, the rest to stderr."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from launchscope.errors import LaunchscopeError, UsageError

if TYPE_CHECKING:
    from launchscope.runner.parent.child_watch import ProgressEvent

_PIPE_WIDTH = 100
_CI_WIDTH = 120
_RESET = "\033[0m"
_STYLES = {"bold": "\033[1m", "dim": "\033[2m", "red": "\033[1;31m", "yellow": "\033[33m"}


def open_streams() -> None:
    """Opens the standard streams that were closed at the start: Python has None for them, and the
    next file to be opened would take their number, in the script's process too."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            file = open(os.devnull, mode)  # noqa: SIM115
            os.set_inheritable(file.fileno(), True)
            setattr(sys, name, file)


def discard_output(stream: TextIO) -> None:
    """Drops what is not written yet; Python would report an error about it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@dataclass
class Console:
    """The two streams of this process and how to write to them; the Progress of every command.

    `words` is the command line, for suggesting it again.
    """

    stdout: TextIO
    stderr: TextIO
    environ: Mapping[str, str]
    words: list[str] = field(default_factory=list)
    quiet: bool = False
    verbose: bool = False
    _has_status: bool = False  # stderr shows a status line without a newline
    _started: dict[str, tuple[float, int]] = field(default_factory=dict)  # passes: when, steps

    # ------------------------------------------------------------ what it can show

    @property
    def in_ci(self) -> bool:
        return self.environ.get("CI", "").lower() not in ("", "0", "false")

    @property
    def on_github(self) -> bool:
        """Whether this runs in GitHub Actions, which reads annotations from both streams."""
        return self.environ.get("GITHUB_ACTIONS", "").lower() == "true"

    @property
    def folder(self) -> str:
        """The working directory relative to the repository in GitHub Actions, whose annotations
        and code scanning need paths from there; empty elsewhere."""
        top = self.environ.get("GITHUB_WORKSPACE")
        if not self.on_github or not top:
            return ""
        below = os.path.relpath(os.path.realpath(os.curdir), os.path.realpath(top))
        return "" if below == os.curdir or below.startswith(os.pardir) else below

    @property
    def color(self) -> bool:
        """Whether the report has colors."""
        return self._has_color(self.stdout)

    @property
    def unicode(self) -> bool:
        return "utf" in (getattr(self.stdout, "encoding", None) or "").lower()

    @property
    def width(self) -> int:
        """Columns of the terminal; off a terminal 100, in CI 120, unless COLUMNS says."""
        if self.environ.get("COLUMNS", "").isdecimal() and int(self.environ["COLUMNS"]) > 0:
            return max(60, int(self.environ["COLUMNS"]))
        if self.stdout.isatty():
            return max(60, min(120, shutil.get_terminal_size().columns))
        return _CI_WIDTH if self.in_ci else _PIPE_WIDTH

    def _has_color(self, stream: TextIO) -> bool:
        if self.environ.get("NO_COLOR"):
            return False
        forced = self.environ.get("FORCE_COLOR", "")
        if forced and forced != "0":
            return True
        return stream.isatty() and self.environ.get("TERM") != "dumb"

    # ---------------------------------------------------------------- what it prints

    def out(self, text: str | bytes) -> None:
        """The result, to stdout as it is."""
        self.clear_status()
        if isinstance(text, bytes):
            text = text.decode()
        try:
            try:
                self.stdout.write(text)
            except UnicodeEncodeError:
                encoding = getattr(self.stdout, "encoding", None) or "ascii"
                self.stdout.write(text.encode(encoding, "replace").decode(encoding))
            self.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(f"cannot write the report to stdout: {reason}") from error

    def beside(self, text: str | bytes) -> None:
        """To stderr as it is: what must not be in a report that a program reads."""
        self.clear_status()
        self._write(text if isinstance(text, str) else text.decode())

    def on_event(self, event: ProgressEvent) -> None:
        """One line per pass that ended, with its time; a status line while it runs.

        The script writes to the same terminal, so only the last line is ever redrawn.
        """
        if event.kind == "note":
            self.note(event.text)
            return
        if event.kind == "run":
            self.message(event.text)
            return
        if event.kind == "pass_start":
            self._started[event.name] = time.monotonic(), event.total
        started, total = self._started.get(event.name, (time.monotonic(), event.total))
        line = f"{event.label}, {total} step{'' if total == 1 else 's'}" if total else event.label
        if event.kind == "pass_start":
            self.status(line)
        elif event.kind == "pass_progress":
            self.status(f"{line} {event.done}/{event.total}")
        else:
            self.message(f"{line}, {event.text or f'{time.monotonic() - started:.1f} s'}")

    def message(self, text: str) -> None:
        """A line about what happens; silent with -q."""
        if not self.quiet:
            self._line(f"launchscope: {text}", "dim")

    def status(self, text: str) -> None:
        """A line that the next one replaces, only on a terminal and never in CI; "" clears it."""
        if not text:
            self.clear_status()
        if not text or self.quiet or self.in_ci or not self.stderr.isatty():
            return
        self._write(f"\r\033[K{self._styled(f'launchscope: {text} ...', 'dim')}")
        self._has_status = True

    def clear_status(self) -> None:
        if self._has_status:
            self._write("\r\033[K")
            self._has_status = False

    def note(self, text: str) -> None:
        """Something to know about the run; silent with -q."""
        if not self.quiet:
            self._line(f"note: {text}", "yellow")

    def error(self, text: str, hint: str | None = None) -> None:
        """What went wrong, and on a second line what to do about it; printed even with -q."""
        self.clear_status()
        self._write(f"{self._styled('error:', 'red')} {text}\n")
        if hint:
            self._write(f"{self._styled('hint:', 'bold')} {hint}\n")

    def problem(self, error: LaunchscopeError) -> None:
        self.error(str(error), error.hint)

    def _line(self, text: str, style: str) -> None:
        self.clear_status()
        self._write(self._styled(text, style) + "\n")

    def _write(self, text: str) -> None:
        """To stderr. If its reader is gone, the results still matter: nothing is raised."""
        try:
            self.stderr.write(text)
            self.stderr.flush()
        except OSError:
            discard_output(self.stderr)

    def _styled(self, text: str, style: str) -> str:
        return f"{_STYLES[style]}{text}{_RESET}" if self._has_color(self.stderr) else text


_current: Console | None = None


def console() -> Console:
    """The console of the command that runs."""
    return _current or new_console()


def new_console(words: Sequence[str] = ()) -> Console:
    """A fresh console for a new command."""
    global _current
    _current = Console(sys.stdout, sys.stderr, os.environ, list(words))
    return _current
