"""Everything launchscope writes to the terminal: reports to stdout, the rest to stderr."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from launchscope.cli.progress_line import ProgressLine
from launchscope.errors import UsageError
from launchscope.host import Blocks, working_directory
from launchscope.visible import in_encoding, inert_json, is_utf_8, visible, without_commands
from launchscope.workflows.progress import Progress

if TYPE_CHECKING:
    from launchscope.model import Profile
    from launchscope.report import Content
    from launchscope.runner.parent.child_watch import ProgressEvent

_STYLES = {"bold": "\033[1m", "dim": "\033[2m", "red": "\033[1;31m", "yellow": "\033[33m"}
_RESET = "\033[0m"


def discard_output(stream: TextIO) -> None:
    """Drops what is not written yet; Python would report an error about it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@dataclass
class Console(Progress):
    """The two streams of this process and how to write to them; the Progress of every command.
    `words` is the command line, for suggesting it again."""

    stdout: TextIO
    stderr: TextIO
    environ: Mapping[str, str]
    words: list[str] = field(default_factory=list)
    quiet: bool = False
    verbose: bool = False
    script: str = ""  # that the command runs

    def __post_init__(self) -> None:
        self._line_below = ProgressLine(self.stderr)

    # ------------------------------------------------------------ what it can show

    @property
    def in_ci(self) -> bool:
        return self.environ.get("CI", "").lower() not in ("", "0", "false")

    @property
    def on_github(self) -> bool:
        """Whether this runs in GitHub Actions, which reads annotations from both streams."""
        return self.environ.get("GITHUB_ACTIONS", "").lower() == "true"

    @property
    def repository(self) -> str:
        """The folder from which annotations and code scanning name files: the repository of the
        script, or that in which this runs; empty: none."""
        place = Path(os.path.realpath(os.path.join(working_directory(), self.script)))
        here = Path(working_directory())
        folders = [place, *place.parents, here, *here.parents]
        return next((str(folder) for folder in folders if os.path.exists(folder / ".git")), "")

    @property
    def width(self) -> int:
        """Columns of the terminal, 60 to 200; off a terminal 100, in CI 120, or COLUMNS."""
        from shutil import get_terminal_size

        columns = get_terminal_size((120 if self.in_ci else 100, 24)).columns
        return max(60, min(200, columns))

    def has_color(self, stream: TextIO) -> bool:
        if self.environ.get("NO_COLOR"):
            return False
        if self.environ.get("FORCE_COLOR", "0") not in ("", "0"):
            return True
        return stream.isatty() and self.environ.get("TERM") != "dumb"

    # ---------------------------------------------------------------- what it prints

    def out(self, text: Content, *, commands: bool = False) -> None:
        """The result, to stdout. No line of it is a command to a CI service, unless it is made of
        them. Blocks are JSON, and hold the same values."""
        self._line_below.clear()
        with self.writing():
            if isinstance(text, Blocks):
                is_ascii = not is_utf_8(_encoding(self.stdout))
                for block in text:
                    self.stdout.write(inert_json(block, ascii_only=is_ascii).decode())
            else:
                text = text.decode(errors="replace") if isinstance(text, bytes) else text
                text = text if commands else without_commands(text)
                self.stdout.write(in_encoding(text, _encoding(self.stdout)))
            self.stdout.flush()

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Inside, nothing but writing to stdout raises an OSError, which becomes a UsageError."""
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            discard_output(self.stdout)
            raise UsageError(f"cannot write to stdout: {error.strerror or error}") from error

    def reading(self, done: int, total: int) -> None:
        if self._shows_progress:
            self._line_below.show("reading files", done, total)

    def beside(self, text: str | bytes, *, commands: bool = False) -> None:
        """Writes lines to stderr that must not be in a report that a program reads."""
        text = text.decode() if isinstance(text, bytes) else text
        self._emit("\n".join(map(visible, text.split("\n"))), commands=commands)

    def on_event(self, event: ProgressEvent) -> None:
        match event.kind:
            case "run":
                self.message(event.text)
            case "pass":
                if self._shows_progress:
                    self._line_below.show(event.label, event.done, event.total)
            case "pass_end":
                self.message(f"{event.label}, {event.text}")
            case "note":
                self.note(event.text)
            case "details":
                if self.verbose:
                    self.beside(event.text)
            case "ended":
                self._line_below.clear()

    def so_far(self, profile: Callable[[], Profile]) -> None:
        if self.quiet:
            return
        from launchscope.report.documents.labels import VERDICTS
        from launchscope.wording import pct

        found = profile()
        verdict, source = found.verdict, found.iteration_source
        if verdict is not None and verdict.removable_pct is not None:
            label = VERDICTS[verdict.recommendation][0].upper()
            share = f"{pct(verdict.removable_pct)} of the iteration ({source})"
            self.message(f"so far: {label}, {share}; measuring the script's own loop")

    def message(self, text: str) -> None:
        """A line about what happens; silent with -q."""
        if not self.quiet:
            self._line(self._styled(f"launchscope: {visible(text)}", "dim"))

    def note(self, text: str) -> None:
        """Something to know about the run; silent with -q."""
        if not self.quiet:
            self._line(self._styled(f"note: {visible(text)}", "yellow"))

    def error(self, text: str, hint: str | None = None) -> None:
        """What went wrong, and on a second line what to do about it; printed even with -q."""
        self._line(f"{self._styled('error:', 'red')} {visible(text)}")
        if hint:
            self._line(f"{self._styled('hint:', 'bold')} {visible(hint)}")

    @property
    def _shows_progress(self) -> bool:
        return not (self.quiet or self.in_ci)

    def _line(self, text: str) -> None:
        self._emit(f"{text}\n")

    def _emit(self, text: str, *, commands: bool = False) -> None:
        """Text of several lines is one write, too."""
        self._line_below.clear()
        self._write(text if commands else without_commands(text))

    def _write(self, text: str) -> None:
        """Writes to stderr. If its reader is gone, nothing is raised: the results still matter."""
        try:
            self.stderr.write(in_encoding(text, _encoding(self.stderr)))
            self.stderr.flush()
        except OSError:
            discard_output(self.stderr)

    def _styled(self, text: str, style: str) -> str:
        return f"{_STYLES[style]}{text}{_RESET}" if self.has_color(self.stderr) else text


def _encoding(stream: TextIO) -> str | None:
    return getattr(stream, "encoding", None)


_current: Console | None = None


def console() -> Console:
    """The console of the command that runs."""
    return _current or new_console()


def new_console(words: Sequence[str] = ()) -> Console:
    """A fresh console for a new command."""
    global _current
    _current = Console(sys.stdout, sys.stderr, os.environ, list(words))
    return _current
