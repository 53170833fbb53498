"""Where a report goes: checked before the run, written after it, saved elsewhere if that fails."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import field, replace
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
        return cls(shown, tuple(files), prints, refused)

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

    def _print(self, report: Content, console: Console, *, after_script: bool) -> None:
        is_command = self.shown.name == "github"  # which has to begin a line
        if not console.stdout.isatty() and (after_script or (is_command and _one_log(console))):
            console.out("\n")
        console.out(report, commands=is_command)

    def deliver(
        self,
        value: object,
        console: Console,
        next_commands: tuple[str, ...],
        problem: LaunchscopeError | None = None,
        *,
        after_script: bool = False,
    ) -> int:
        """Prints the report, writes the files, prints the problem; returns the exit code: 2 if a
        file could not be written (a Profile or Comparison is then saved in a temporary folder).
        `after_script`: a script has printed to stdout, maybe a line without its end."""
        in_file = replace(located(console), trace=self._traces[0] if self._traces else None)
        shown = replace(
            in_file,
            width=console.width,
            color=console.has_color(console.stdout),
            unicode=console.unicode,
            top=10_000 if console.verbose else None,
            next_commands=next_commands,
            brief=not console.verbose,
            page=next((str(path) for path, made in self.files if made.name == "html"), ""),
        )
        problem = problem or self._refused
        report: Content = ""
        try:
            report = self.shown.content(value, shown) if self.prints else ""
        except UsageError as error:  # the value has nothing that this format shows
            problem = problem or error
        failed = False
        try:
            if self.prints:
                self._print(report, console, after_script=after_script)
        except (BrokenPipeError, UsageError) as error:
            if problem is None:
                raise
            if isinstance(error, UsageError):
                console.error(str(error))
            discard_output(console.stdout)  # how the script ended decides the exit code
        finally:  # write the files even if the reader of stdout is gone
            for path, reporter in self.files:
                try:
                    content = reporter.content(value, in_file)
                except UsageError as error:
                    problem = problem or error
                    continue
                try:
                    write_report(path, content)
                    console.message(f"wrote {path}")
                except OSError as error:
                    failed = True
                    console.error(f"cannot write {path}: {error.strerror or error}")
        if failed:
            _rescue(value, console)
        if problem is not None:
            console.error(str(problem), problem.hint)
            return problem.exit_code
        return UNWRITTEN if failed else 0


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


def _rescue(value: object, console: Console) -> None:
    """Saves a Profile or Comparison whose file could not be written."""
    from launchscope.model import Comparison, Profile

    if not isinstance(value, Profile | Comparison):
        return
    import tempfile

    noun = "Profile" if isinstance(value, Profile) else "comparison"
    try:
        saved = Path(tempfile.mkdtemp(prefix="launchscope-")) / f"{noun.lower()}.json"
        write_report(saved, reporter_named("json").render(value))
    except OSError as error:
        console.error(
            f"the {noun} could not be saved for later either: {error.strerror or error}",
            "set TMPDIR to a writable folder with room",
        )
        return
    console.error(
        f"the {noun} was saved as {saved}",
        f"launchscope report {shown_path(saved)} -o PATH writes it again",
    )
