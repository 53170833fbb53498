"""Everything launchscope writes to the terminal: reports to stdout, all else to stderr."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

from launchscope.errors import LaunchscopeError, UsageError

_PIPE_WIDTH = 100
_CI_WIDTH = 120
_RESET = "\033[0m"
_STYLES = {"bold": "\033[1m", "dim": "\033[2m", "red": "\033[1;31m", "yellow": "\033[33m"}


def open_streams() -> None:
    """Opens those that were closed before we began: Python has None for them, and the next file
    that is opened would take their number, also in the script's process."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            file = open(os.devnull, mode)  # noqa: SIM115
            os.set_inheritable(file.fileno(), True)
            setattr(sys, name, file)


def to_nowhere(stream: TextIO) -> None:
    """Drops what is still to be written to it: Python would complain of it at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@dataclass
class Console:
    """The two streams of this process and how to write to them. Values are read once."""

    stdout: TextIO
    stderr: TextIO
    environ: Mapping[str, str]
    quiet: bool = False
    verbose: bool = False
    _transient: bool = False  # a status line without its newline stands on stderr

    @classmethod
    def of_process(cls) -> Console:
        return cls(sys.stdout, sys.stderr, os.environ)

    # ------------------------------------------------------------- what it can do

    @property
    def in_ci(self) -> bool:
        return self.environ.get("CI", "").lower() not in ("", "0", "false")

    @property
    def on_github(self) -> bool:
        """Whether this runs in GitHub Actions, which reads annotations from both streams."""
        return self.environ.get("GITHUB_ACTIONS", "").lower() == "true"

    @property
    def folder(self) -> str:
        """The working directory below the repository in GitHub Actions, whose annotations and
        code scanning take paths from there; empty elsewhere."""
        top = self.environ.get("GITHUB_WORKSPACE")
        if not self.on_github or not top:
            return ""
        below = os.path.relpath(os.path.realpath(os.curdir), os.path.realpath(top))
        return "" if below == os.curdir or below.startswith(os.pardir) else below

    @property
    def color(self) -> bool:
        """Whether the report is coloured."""
        return self._colored(self.stdout)

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

    def _colored(self, stream: TextIO) -> bool:
        if self.environ.get("NO_COLOR"):
            return False
        forced = self.environ.get("FORCE_COLOR", "")
        if forced and forced != "0":
            return True
        return stream.isatty() and self.environ.get("TERM") != "dumb"

    # ---------------------------------------------------------------- what it says

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
        """To stderr as it is: what must not stand in a report that a program reads."""
        self.clear_status()
        self._tell(text if isinstance(text, str) else text.decode())

    def progress(self, text: str) -> None:
        """A line on what is happening; silent with -q."""
        if not self.quiet:
            self._line(f"launchscope: {text}", "dim")

    def status(self, text: str) -> None:
        """A line that the next one replaces: only on a terminal, never in CI."""
        if self.quiet or self.in_ci or not self.stderr.isatty():
            return
        self._tell(f"\r\033[K{self._styled(f'launchscope: {text} ...', 'dim')}")
        self._transient = True

    def clear_status(self) -> None:
        if self._transient:
            self._tell("\r\033[K")
            self._transient = False

    def note(self, text: str) -> None:
        """Something to know about the run; silent with -q."""
        if not self.quiet:
            self._line(f"note: {text}", "yellow")

    def error(self, text: str, hint: str | None = None) -> None:
        """What went wrong, and on a second line what to do about it. Always printed."""
        self.clear_status()
        self._tell(f"{self._styled('error:', 'red')} {text}\n")
        if hint:
            self._tell(f"{self._styled('hint:', 'bold')} {hint}\n")

    def problem(self, error: LaunchscopeError) -> None:
        self.error(str(error), error.hint)

    def _line(self, text: str, style: str) -> None:
        self.clear_status()
        self._tell(self._styled(text, style) + "\n")

    def _tell(self, text: str) -> None:
        """To stderr; if whoever read it has gone, the results matter more than what is said."""
        try:
            self.stderr.write(text)
            self.stderr.flush()
        except OSError:
            to_nowhere(self.stderr)

    def _styled(self, text: str, style: str) -> str:
        return f"{_STYLES[style]}{text}{_RESET}" if self._colored(self.stderr) else text
