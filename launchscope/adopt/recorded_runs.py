"""Starts runs of a script that are compared with one another, each in a process of its own, and
reads what they recorded."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec

from launchscope.adopt.record import (
    PATCHED_RESULT,
    RECORD_FILE,
    RESULT,
    Iteration,
    PatchedCalls,
    RunResult,
    RunTask,
)
from launchscope.errors import MeasureError
from launchscope.model import Schedule, Target
from launchscope.runner.parent.child_report import ChildReport
from launchscope.runner.parent.child_watch import ChildWatch, ProgressEvent
from launchscope.runner.parent.interpreter import Process
from launchscope.runner.parent.run_folder import RunFolder
from launchscope.runner.protocol.folder import EntryPoint, Plan, SourceTree

_ENTRY_POINTS = "launchscope.adopt.child.entry_points"
_LABELS = {RESULT: "comparing iterations"}
_PRINTED, _ERRORS = "output.txt", "errors.txt"
_LONGEST_TAIL = 4000  # bytes of what a failed run printed
_LONGEST_OUTPUT = 2**20  # bytes that are compared


@dataclass(frozen=True)
class RecordedRun:
    """What came of one run. `result` None: its process died before it wrote one. `printed`: the
    beginning of its standard output; `files`: the texts of the files that it wrote."""

    report: ChildReport
    result: RunResult | None
    place: Path
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def went_well(self) -> bool:
        report = self.report
        bad = report.signal or report.timed_out or report.failed or report.refused_write
        return self.result is not None and not bad and report.own_failure is None

    @functools.cached_property
    def iterations(self) -> tuple[Iteration, ...]:
        """Those that were written whole; the first one is the state before any."""
        lines: list[bytes] = []
        with contextlib.suppress(OSError):
            lines = (self.place / RECORD_FILE).read_bytes().splitlines(keepends=True)
        whole = (line for line in lines if line.endswith(b"\n"))
        return tuple(msgspec.json.decode(line, type=Iteration) for line in whole)

    @functools.cached_property
    def printed(self) -> str:
        """In whole lines where there is more than is compared."""
        content = b""
        with contextlib.suppress(OSError), (self.place / _PRINTED).open("rb") as file:
            content = file.read(_LONGEST_OUTPUT)
            if file.read(1):
                content = content[: content.rfind(b"\n") + 1]
        return content.decode(errors="replace")

    @property
    def said_last(self) -> str:
        """The last line of its standard error, or else of its output; empty without any."""
        for name in (_ERRORS, _PRINTED):
            lines = [line for line in _end_of(self.place / name).splitlines() if line.strip()]
            if lines:
                return lines[-1].strip()
        return ""


@dataclass
class RecordedRuns:
    """Starts runs, one at a time, in a `with` block; `timeout_s` bounds them together."""

    on_progress: Callable[[ProgressEvent], None]
    timeout_s: float | None = None
    python: str | None = None
    _watch: ChildWatch = field(init=False)

    def __enter__(self) -> RecordedRuns:
        self._watch = ChildWatch(self.on_progress, self.timeout_s, None, labels=_LABELS)
        self._watch.signals.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._watch.signals.__exit__(*raised)

    def run(
        self,
        target: Target,
        task: RunTask,
        place: Path,
        inside: Path,
        environ: Mapping[str, str],
        tree: SourceTree,
    ) -> RecordedRun:
        """The target in the folder `inside`; files of launchscope go to `place`. Raises
        MeasureError if it cannot be started."""
        entry = EntryPoint(_ENTRY_POINTS, "record", asdict(task))
        plan = Plan(target, (), Schedule(), tree=tree, entry_point=entry)
        folder, report = self._follow(plan, place, inside, environ, output=True)
        result = None
        with contextlib.suppress(msgspec.MsgspecError):
            result = folder.read(RESULT, RunResult)
        return RecordedRun(report, result, place)

    def run_patched(
        self, target: Target, replaced: Mapping[str, str], place: Path
    ) -> tuple[ChildReport, PatchedCalls | None]:
        """Run the target here, to its end, with other contents of some sources."""
        entry = EntryPoint(_ENTRY_POINTS, "run_patched", dict(replaced))
        plan = Plan(target, (), Schedule(full=True), measures=False, entry_point=entry)
        folder, report = self._follow(plan, place, None, {}, output=False)
        return report, folder.read(PATCHED_RESULT, PatchedCalls)

    def _follow(
        self,
        plan: Plan,
        place: Path,
        inside: Path | None,
        environ: Mapping[str, str],
        *,
        output: bool,
    ) -> tuple[RunFolder, ChildReport]:
        """A process that carries out the plan, from its start to its end. `output`: what it prints
        goes to files."""
        folder = RunFolder(place)
        try:
            place.mkdir(parents=True)
            with contextlib.ExitStack() as stack:
                printed, errors = (
                    stack.enter_context((place / name).open("wb")).fileno() if output else None
                    for name in (_PRINTED, _ERRORS)
                )
                there = None if inside is None else os.fspath(inside)
                process = Process(self.python, environ, printed, errors, there)
                return folder, self._watch.carry_out(plan, folder, process)
        except OSError as error:
            raise MeasureError(f"a run cannot be started: {error.strerror or error}") from None


def _end_of(path: Path) -> str:
    content = b""
    with contextlib.suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LONGEST_TAIL))
        content = file.read()
    return content.decode(errors="replace")
