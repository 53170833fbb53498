"""Where a report goes: checked before the run, written after it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from launchscope.cli.console import Console
from launchscope.cli.options import Typed
from launchscope.errors import LaunchscopeError, UsageError
from launchscope.report import RenderOptions, Reporter, reporter_for_path, reporter_named
from launchscope.workflows.save import require_writable, shown_path, write_report

if TYPE_CHECKING:
    from launchscope.analysis.timeline.annotations import Annotations
    from launchscope.analysis.timeline.work import Work


@dataclass(frozen=True)
class Outputs:
    """The format on stdout, and the files with theirs."""

    shown: Reporter
    files: tuple[tuple[Path, Reporter], ...]
    prints: bool = True  # the report goes to stdout, too
    _traces: list[Annotations] = field(default_factory=list)

    @classmethod
    def checked(cls, typed: Typed, kind: type | None = None) -> Outputs:
        """UsageError for a file with an unknown suffix, and for one that cannot be written; before
        a value of this `kind` is measured, also for a format that cannot show it."""
        shown = reporter_named(typed.format_name)
        files = [(path, reporter_for_path(path)) for path in typed.output]
        for path in typed.output:
            require_writable(path)
        if kind is not None:
            for reporter in (shown, *dict(files).values()):
                reporter.renderer(kind)
                if reporter.shows_trace:
                    raise UsageError(
                        f"the format {reporter.name} shows a trace, which a run does not keep",
                        hint="launchscope profile --keep-trace keeps it in a folder, which "
                        "launchscope report reads",
                    )
        prints = not (typed.console.quiet and files and shown.name == "terminal")
        return cls(shown, tuple(files), prints)

    def require_spared(self, inputs: Sequence[Path]) -> None:
        """UsageError if a report would replace one of these files, or a file in one of these
        folders."""
        places = {os.path.realpath(path) for path in inputs}
        for path, _ in self.files:
            place = os.path.realpath(path)
            if path.is_file() and places & {place, os.path.dirname(place)}:
                raise UsageError(
                    f"-o {path} would overwrite what is read", hint="name another file"
                )

    def has(self, format_name: str) -> bool:
        """Whether a file has this format."""
        return any(reporter.name == format_name for _, reporter in self.files)

    def report_again(self, *, kept: bool) -> tuple[str, ...]:
        """The command that shows the report again without measuring: from the JSON file, or as a
        page if the run was `kept` and there is none yet."""
        files = {reporter.name: path for path, reporter in self.files}
        if "json" in files:
            return (f"launchscope report {shown_path(files['json'])}",)
        return ("launchscope report -o report.html",) if kept and "html" not in files else ()

    def annotate(self, work: Work) -> None:
        """Keeps what they show of the trace. For `on_work`."""
        if any(reporter.shows_trace for reporter in (self.shown, *dict(self.files).values())):
            from launchscope.analysis.timeline.annotations import annotate

            self._traces.append(annotate(work))

    def deliver(
        self,
        value: object,
        console: Console,
        next_commands: tuple[str, ...],
        problem: LaunchscopeError | None = None,
        *,
        after_script: bool = False,
    ) -> int:
        """Writes the files, each whatever becomes of the others, prints the report and the problem;
        returns the exit code: 2 if a file could not be written. `after_script`: a script has
        printed to stdout, maybe a line without its end."""
        trace = self._traces[0] if self._traces else None
        in_file = RenderOptions(repository=console.repository, trace=trace)
        failures = [_failure(path, reporter, value, in_file) for path, reporter in self.files]
        if self.prints:
            if after_script and not console.stdout.isatty():
                console.out("\n")
            report = self.shown.render(value, self._on_stdout(in_file, console, next_commands))
            console.out(report, commands=self.shown.name == "github")
        code = 0
        for (path, _), failure in zip(self.files, failures):
            if failure is None:
                console.message(f"wrote {path}")
            else:
                console.error(f"cannot write {path}: {failure}", failure.hint)
                code = code or failure.exit_code
        if problem is not None:
            console.error(str(problem), problem.hint)
            code = problem.exit_code or code
        return code

    def _on_stdout(
        self, in_file: RenderOptions, console: Console, next_commands: tuple[str, ...]
    ) -> RenderOptions:
        return replace(
            in_file,
            width=console.width,
            color=console.has_color(console.stdout),
            top=10_000 if console.verbose else None,
            next_commands=next_commands,
            brief=not console.verbose,
            more="-v or -o report.html shows the whole report",
        )


def _failure(
    path: Path, reporter: Reporter, value: object, options: RenderOptions
) -> LaunchscopeError | None:
    try:
        write_report(path, reporter.render(value, options))
    except OSError as error:
        return UsageError(error.strerror or str(error))
    except LaunchscopeError as error:  # the value has nothing that this format shows
        return error
    return None
