"""Everything launchscope writes to the terminal: reports to stdout, the rest to stderr."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from launchscope.cli.bottom_line import BottomLine
from launchscope.errors import UsageError
from launchscope.host import Blocks
from launchscope.visible import in_encoding, inert_blocks, is_utf_8, visible, without_commands
from launchscope.workflows.progress import Progress

if TYPE_CHECKING:
    from launchscope.report import Content
    from launchscope.runner.parent.child_watch import ProgressEvent

_STYLES = {"bold": "\033[1m", "dim": "\033[2m", "red": "\033[1;31m", "yellow": "\033[33m"}
_RESET = "\033[0m"
# Terminals with links: by variables of their own, by TERM_PROGRAM and by TERM.
_LINKS_IN = ("DOMTERM", "KITTY_WINDOW_ID", "KONSOLE_VERSION", "WEZTERM_PANE", "WT_SESSION")
_PROGRAMS_WITH_LINKS = ("ghostty", "Hyper", "iTerm.app", "mintty", "rio", "vscode", "WezTerm")
_TERMS_WITH_LINKS = ("alacritty", "contour", "foot", "xterm-ghostty", "xterm-kitty")


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
    _held: list[str] | None = None  # while the script runs: what is written after it
    _pass: ProgressEvent | None = None  # the state of the current pass
    _noted: bool = False  # the last row shows a note in its place

    def __post_init__(self) -> None:
        self._bottom = BottomLine(self.stderr, self.environ)

    # ------------------------------------------------------------ what it can show

    @property
    def in_ci(self) -> bool:
        return self.environ.get("CI", "").lower() not in ("", "0", "false")

    @property
    def on_github(self) -> bool:
        """Whether this runs in GitHub Actions, which reads annotations from both streams."""
        return self.environ.get("GITHUB_ACTIONS", "").lower() == "true"

    @property
    def runs_commands(self) -> bool:
        """Whether this certainly runs for a CI service, which reads commands from both streams."""
        known = ("GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION")
        return self.in_ci or any(map(self.environ.get, known))

    @property
    def repository(self) -> str:
        """The folder from which annotations and code scanning name files: the repository in which
        this runs or, where the script is in another one, that of the script; empty: none."""
        try:
            folders = [(here := Path.cwd()), *here.parents]
        except OSError:  # it was deleted
            return ""
        if self.script:
            above = Path(os.path.realpath(self.script)).parents
            folders = [*(folder for folder in folders if folder in above), *above, *folders]
        top = self.environ.get("GITHUB_WORKSPACE") if self.on_github else None
        if top and (workspace := Path(os.path.realpath(top))) in folders:
            return str(workspace)
        return next((str(folder) for folder in folders if os.path.exists(folder / ".git")), "")

    @property
    def folder(self) -> str:
        """The working directory relative to the repository."""
        return os.path.relpath(os.curdir, self.repository) if self.repository else ""

    @property
    def unicode(self) -> bool:
        return is_utf_8(_encoding(self.stdout))

    @property
    def width(self) -> int:
        """Columns of the terminal; off a terminal 100, in CI 120, unless COLUMNS says."""
        columns = self.environ.get("COLUMNS", "")
        if columns.isdecimal() and len(columns) < 5 and int(columns) > 0:
            return max(60, int(columns))
        if self.stdout.isatty():
            import shutil

            return max(60, min(120, shutil.get_terminal_size().columns))
        return 120 if self.in_ci else 100

    def has_color(self, stream: TextIO) -> bool:
        if self.environ.get("NO_COLOR"):
            return False
        if self.environ.get("FORCE_COLOR", "0") not in ("", "0"):
            return True
        return stream.isatty() and self.environ.get("TERM") != "dumb"

    @property
    def has_links(self) -> bool:
        """Whether the terminal is one that is known for links behind a text (OSC 8)."""
        if not self.stdout.isatty():
            return False
        of_vte = self.environ.get("VTE_VERSION", "")
        is_new = of_vte.isdecimal() and len(of_vte) < 10 and int(of_vte) >= 5000
        if is_new or any(map(self.environ.get, _LINKS_IN)):
            return True
        program, term = self.environ.get("TERM_PROGRAM", ""), self.environ.get("TERM", "")
        return program in _PROGRAMS_WITH_LINKS or term in _TERMS_WITH_LINKS

    # ---------------------------------------------------------------- what it prints

    def out(self, text: Content, *, commands: bool = False) -> None:
        """The result, to stdout. No line of it is a command to a CI service, unless it is made of
        them: what starts us there (a container) may have given us a terminal, and no variable that
        tells. Blocks are JSON, and hold the same values."""
        self.status("")
        with self.writing():
            if isinstance(text, Blocks):
                for block in inert_blocks(text, ascii_only=not self.unicode):
                    self.stdout.write(block.decode())
            else:
                text = text.decode() if isinstance(text, bytes) else text
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

    def beside(self, text: str | bytes, *, commands: bool = False) -> None:
        """Writes lines to stderr that must not be in a report that a program reads."""
        text = text.decode() if isinstance(text, bytes) else text
        self._emit("\n".join(map(visible, text.split("\n"))), commands=commands)

    def on_event(self, event: ProgressEvent) -> None:
        """While the script runs, its output is all that is written, so that no line of ours stands
        in one of its lines: the last row of a terminal shows what happens, and our lines follow,
        one per pass with its time."""
        match event.kind:
            case "run":
                self._script_ended()
                self.message(event.text)
                self._held = []
            case "ended":
                self._script_ended()
            case "note":
                self.note(event.text)
            case "details":
                if self.verbose:
                    self.beside(event.text)
            case "tick":
                if self._pass is not None and not self._noted:
                    self._show(replace(self._pass, left_s=event.left_s))
            case "pass_end":
                of_it = self._pass if self._pass and self._pass.name == event.name else event
                self.message(f"{event.label}{_steps(of_it.total)}, {event.text}")
            case _:
                self._show(event)

    def _show(self, event: ProgressEvent) -> None:
        """The state of the current pass, in the last row."""
        from launchscope.wording import duration

        self._pass, self._noted = event, False
        number = f"[{event.number}/{event.passes}] " if event.number else ""
        steps = f", step {event.done} of {event.total}" if event.done else _steps(event.total)
        left = "" if event.left_s is None else f", about {duration(event.left_s)} left"
        self.status(f"{number}{event.label}{steps}{left}")

    def _script_ended(self) -> None:
        """Nothing of the script is printed from now on, maybe until its next run."""
        if self._held is not None:
            self.status("")
            if not self.quiet:
                self._bottom.begin_line()
            held, self._held, self._pass = self._held, None, None
            for text in held:
                self._write(text)

    def message(self, text: str) -> None:
        """A line about what happens; silent with -q."""
        if not self.quiet:
            self._line(self._styled(f"launchscope: {visible(text)}", "dim"))

    def note(self, text: str) -> None:
        """Something to know about the run; silent with -q. It may be what a person waits for."""
        if not self.quiet:
            if self._held is not None:
                self._noted = True
                self.status(text)
            self._line(self._styled(f"note: {visible(text)}", "yellow"))

    def error(self, text: str, hint: str | None = None) -> None:
        """What went wrong, and on a second line what to do about it; printed even with -q."""
        self._line(f"{self._styled('error:', 'red')} {visible(text)}")
        if hint:
            self._line(f"{self._styled('hint:', 'bold')} {visible(hint)}")

    def status(self, text: str) -> None:
        """What happens, in the last row of a terminal and never in CI; "" clears it."""
        if not text:
            self._bottom.close()
        elif not self.quiet and not self.runs_commands:
            self._bottom.show(without_commands(f"launchscope: {visible(text)}"))

    def _line(self, text: str) -> None:
        self._emit(f"{text}\n")

    def _emit(self, text: str, *, commands: bool = False) -> None:
        """Now, or after what the script prints. Text of several lines is one write, too."""
        text = text if commands else without_commands(text)
        if self._held is None:
            self._bottom.close()
            self._write(text)
        else:
            self._held.append(text)

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


def _steps(number: int) -> str:
    from launchscope.wording import plural

    return f", {plural(number, 'step')}" if number else ""


_current: Console | None = None


def console() -> Console:
    """The console of the command that runs."""
    return _current or new_console()


def new_console(words: Sequence[str] = ()) -> Console:
    """A fresh console for a new command."""
    global _current
    _current = Console(sys.stdout, sys.stderr, os.environ, list(words))
    return _current
