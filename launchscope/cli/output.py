"""Where a report goes: checked before the run, written after it, saved elsewhere if that fails."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from launchscope.cli.console import Console, discard_output
from launchscope.cli.options import Typed
from launchscope.errors import LaunchscopeError, UsageError
from launchscope.frozen import dataclass
from launchscope.report import Content, RenderOptions, Reporter, reporter_for_path, reporter_named
from launchscope.workflows.save import require_writable, shown_path, write_report

if TYPE_CHECKING:
    from launchscope.analysis.timeline.annotations import Annotations
    from launchscope.analysis.timeline.work import Work

UNWRITTEN = 2


@dataclass(frozen=True)
class Outputs:
    """The format on stdout, and the files with theirs."""

    shown: Reporter
    files: tuple[tuple[Path, Reporter], ...]
    also: tuple[Path, ...] = ()  # files that the command makes itself
    prints: bool = True  # the report goes to stdout, too
    _refused: LaunchscopeError | None = None  # said once the other files are written
    _traces: list[Annotations] = field(default_factory=list)

    @classmethod
    def checked(
        cls, typed: Typed, kind: type, *, runs: bool = True, also: Sequence[Path] = ()
    ) -> Outputs:
        """UsageError that names every file with an unknown suffix or a format that cannot show
        values of this kind, and every file that cannot be written. If no script `runs` first,
        nothing is lost by writing the others and saying so at the end. `also`: files that the
        command itself writes."""
        shown = reporter_named(typed.format_name)
        shown.renderer(kind)
        files: list[tuple[Path, Reporter]] = []
        errors: list[UsageError] = []
        for path in (*also, *typed.output):
            try:
                require_writable(path)
                if path in also:
                    continue
                reporter = reporter_for_path(path)
                reporter.renderer(kind)
                files.append((path, reporter))
            except UsageError as error:
                errors.append(error)
        _require_different([*also, *(path for path, _ in files)])
        refused = _as_one(errors)
        if refused is not None and (runs or not files):
            raise refused
        prints = not (typed.console.quiet and (files or also) and shown.name == "terminal")
        return cls(shown, tuple(files), tuple(also), prints, refused)

    @property
    def reporters(self) -> tuple[Reporter, ...]:
        return (self.shown, *(reporter for _, reporter in self.files))

    def require_spared(self, inputs: Sequence[Path]) -> None:
        """UsageError if a report would replace one of these files, or a file in one of these
        folders. A Profile that is alone may be replaced by itself."""
        places = {os.path.realpath(path) for path in inputs}
        for path, reporter in self.files:
            place = os.path.realpath(path)
            itself = len(inputs) == 1 and place in places and reporter.name == "json"
            if not itself and path.is_file() and places & {place, os.path.dirname(place)}:
                raise UsageError(
                    f"-o {path} would overwrite what is read", hint="name another file"
                )

    def report_again(self, *, kept: bool) -> tuple[str, ...]:
        """The command that shows the report again without measuring: from the JSON file, or as a
        page if the run was `kept` and there is none yet."""
        files = {reporter.name: path for path, reporter in self.files}
        if "json" in files:
            return (f"launchscope report {shown_path(files['json'])}",)
        return ("launchscope report -o report.html",) if kept and "html" not in files else ()

    @property
    def show_trace(self) -> bool:
        """Whether one of them needs the trace that a Profile is made of."""
        return any(reporter.shows_trace for reporter in (self.shown, *dict(self.files).values()))

    @property
    def lack_trace(self) -> bool:
        """Whether one of them needs it and nothing was annotated."""
        return self.show_trace and not self._traces

    def annotate(self, work: Work, pauses: bool) -> None:
        """Keeps what they show of the trace, whose file has to stay. For `on_work`."""
        if self.show_trace:
            from launchscope.analysis.timeline.annotations import annotate

            self._traces.append(annotate(work, pauses))

    def deliver(
        self,
        value: object,
        console: Console,
        next_commands: tuple[str, ...],
        problem: LaunchscopeError | None = None,
        *,
        after_script: bool = False,
        write_also: Callable[[Path], None] | None = None,
    ) -> int:
        """Prints the report, writes the files, each whatever becomes of the others, and prints the
        problem; returns the exit code: 2 if a file could not be written (the value is then saved
        in a temporary folder). `after_script`: a script has printed to stdout, maybe a line
        without its end. `write_also` writes each file of `also`."""
        in_file = replace(located(console), trace=self._traces[0] if self._traces else None)
        problems = [error for error in (problem, self._refused) if error is not None]
        unwritten: list[Path] = []
        jobs: list[tuple[Path, Callable[[Path], None]]] = [
            (path, partial(_write, reporter, value, in_file)) for path, reporter in self.files
        ]
        if write_also is not None:
            jobs += [(path, write_also) for path in self.also]

        def write(path: Path, job: Callable[[Path], None]) -> None:
            try:
                job(path)
                console.message(f"wrote {path}")
            except LaunchscopeError as error:  # the value has nothing that this format shows
                problems.append(error)
            except OSError as error:
                unwritten.append(path)
                console.error(f"cannot write {path}: {error.strerror or error}")

        with contextlib.ExitStack() as rest:  # no error, in the report or in a file, stops it
            rest.callback(self._rescue, value, console, unwritten)
            for path, job in reversed(jobs):
                rest.callback(write, path, job)
            if self.prints:
                options = self._on_stdout(in_file, console, next_commands)
                self._print(value, options, console, problems, after_script=after_script)
        code = UNWRITTEN if unwritten else 0
        if problems:
            console.error(str(problems[0]), problems[0].hint)
            code = problems[0].exit_code or code
        return code

    def _on_stdout(
        self, in_file: RenderOptions, console: Console, next_commands: tuple[str, ...]
    ) -> RenderOptions:
        return replace(
            in_file,
            width=console.width,
            color=console.has_color(console.stdout),
            unicode=console.unicode,
            top=10_000 if console.verbose else None,
            next_commands=next_commands,
            brief=not console.verbose,
            page=next((str(path) for path, made in self.files if made.name == "html"), ""),
        )

    def _print(
        self,
        value: object,
        options: RenderOptions,
        console: Console,
        problems: list[LaunchscopeError],
        *,
        after_script: bool,
    ) -> None:
        """The report on stdout. An error there is raised, unless another one decides the exit
        code."""
        report: Content = ""
        try:
            report = self.shown.content(value, options)
        except UsageError as error:  # the value has nothing that this format shows
            problems.append(error)
        is_command = self.shown.name == "github"  # which has to begin a line
        try:
            if not console.stdout.isatty() and (after_script or (is_command and _one_log(console))):
                console.out("\n")
            console.out(report, commands=is_command)
        except (BrokenPipeError, UsageError) as error:
            if not problems:
                raise
            if isinstance(error, UsageError):
                console.error(str(error))
            discard_output(console.stdout)

    def _rescue(self, value: object, console: Console, unwritten: Sequence[Path]) -> None:
        """Saves a value of which a file could not be written, unless a JSON file has it."""
        saved = {path for path, made in self.files if made.name == "json"}
        if not unwritten or saved - set(unwritten):
            return
        import tempfile

        noun = type(value).__name__
        try:
            rescued = Path(tempfile.mkdtemp(prefix="launchscope-")) / f"{noun.lower()}.json"
            write_report(rescued, reporter_named("json").render(value))
        except OSError as error:
            console.error(
                f"the {noun} could not be saved for later either: {error.strerror or error}",
                "set TMPDIR to a writable folder with room",
            )
            return
        console.error(
            f"the {noun} was saved as {rescued}",
            f"launchscope report {shown_path(rescued)} -o PATH writes it again",
        )


def _write(reporter: Reporter, value: object, options: RenderOptions, path: Path) -> None:
    write_report(path, reporter.content(value, options))


def _as_one(errors: Sequence[UsageError]) -> UsageError | None:
    """One error that says all of them, with the hint of the first."""
    if len(errors) < 2:
        return errors[0] if errors else None
    return UsageError("; ".join(map(str, errors)), hint=errors[0].hint)


def _one_log(console: Console) -> bool:
    """Whether stderr, where a script may have left a line without its end, is the same file."""
    with contextlib.suppress(OSError, ValueError):
        one, other = (os.fstat(stream.fileno()) for stream in (console.stdout, sys.stderr))
        return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
    return False


def located(console: Console) -> RenderOptions:
    """Options for a report that is made in the working directory."""
    return RenderOptions(repository=console.repository, folder=console.folder)


def _require_different(paths: Sequence[Path]) -> None:
    """UsageError if a report would replace another one, or the file that stdout goes to."""
    seen: set[str] = set()
    for path in paths:
        if path.exists() and not path.is_file():  # /dev/null
            continue
        place = os.path.realpath(path)
        taken = "another report" if place in seen else "stdout" if _is_stdout(path) else ""
        if taken:
            raise UsageError(
                f"-o {path} names the file that {taken} goes to",
                hint="give each report a file of its own",
            )
        seen.add(place)


def _is_stdout(path: Path) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(sys.stdout.fileno()))
    except (OSError, ValueError):  # no such file yet, or a stdout that is none
        return False
