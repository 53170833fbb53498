"""Runs of a script that are compared with one another, each in a process of its own."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from launchscope.errors import MeasureError
from launchscope.model import Schedule, Target
from launchscope.runner.parent.child_report import ChildReport
from launchscope.runner.parent.child_watch import ChildWatch, ProgressEvent
from launchscope.runner.parent.interpreter import child_command, child_environment, stdin_of
from launchscope.runner.parent.run_folder import RunFolder
from launchscope.runner.parent.time_left import TimeLeft
from launchscope.runner.protocol.folder import Plan, SourceTree
from launchscope.runner.protocol.observation import (
    PATCHED_RESULT,
    RESULT,
    STEPS_FILE,
    Observation,
    Observed,
    PatchedCalls,
    StepState,
)
from launchscope.runner.protocol.signals import interrupt_signal

_LONGEST_TAIL = 4000  # characters of what a failed run printed


@dataclass(frozen=True)
class ObservedRun:
    """What came of one run. `result` None: its process died. `printed`: the end of its output."""

    report: ChildReport
    states: tuple[StepState, ...]
    result: Observed | None
    printed: str = ""
    on_gpu: bool = True

    @property
    def units(self) -> int:
        return 0 if self.result is None else self.result.units


@dataclass
class ObservedRuns:
    """Starts runs, one at a time, in a `with` block; `timeout_s` bounds them together. `full`: each
    goes on to its end."""

    on_progress: Callable[[ProgressEvent], None]
    timeout_s: float | None = None
    python: str | None = None
    full: bool = False
    _watch: ChildWatch = field(init=False)

    def __enter__(self) -> ObservedRuns:
        self._watch = ChildWatch(self.on_progress, self.timeout_s, full=self.full)
        self._watch.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        try:
            self._watch.close()
        finally:
            self._watch.__exit__(*raised)

    def run(
        self,
        target: Target,
        observation: Observation,
        place: Path,
        *,
        inside: Path,
        environ: Mapping[str, str],
        tree: SourceTree | None = None,
    ) -> ObservedRun:
        """Run the target in the folder `inside`; the files of the run go to `place`. Raises
        MeasureError if it cannot be started."""
        plan = Plan(
            target=target,
            passes=(),
            schedule=Schedule(),
            stop_after=True,
            interrupt_signal=interrupt_signal(),
            tree=tree,
            observation=observation,
        )
        printed = place / "output.txt"
        folder, report = self._follow(plan, place, inside, environ, printed)
        result = None
        with contextlib.suppress(msgspec.MsgspecError):
            result = folder.read(RESULT, Observed)
        text = printed.read_text(encoding="utf-8", errors="replace")[-_LONGEST_TAIL:]
        return ObservedRun(report, _states(place / STEPS_FILE), result, text, not report.rehearsal)

    def run_patched(
        self, target: Target, replaced: Mapping[str, str], place: Path
    ) -> tuple[ChildReport, PatchedCalls | None]:
        """Run the target here, to its end, with other contents of some sources."""
        plan = Plan(
            target=target,
            passes=(),
            schedule=Schedule(full=True),
            stop_after=False,
            interrupt_signal=interrupt_signal(),
            replaced=dict(replaced),
        )
        folder, report = self._follow(plan, place, None, {}, None)
        return report, folder.read(PATCHED_RESULT, PatchedCalls)

    def _follow(
        self,
        plan: Plan,
        place: Path,
        inside: Path | None,
        environ: Mapping[str, str],
        output: Path | None,
    ) -> tuple[RunFolder, ChildReport]:
        """A process that carries out the plan, from its start to its end."""
        self._watch.settle()
        folder = RunFolder(place)
        report = ChildReport(folder.path)
        try:
            folder.create(plan)
            with contextlib.ExitStack() as stack:
                printed = None if output is None else stack.enter_context(output.open("wb"))
                child = subprocess.Popen(
                    child_command(self.python, folder.path),
                    env=child_environment(environ),
                    stdin=stack.enter_context(stdin_of(plan.target)),
                    stdout=printed,
                    stderr=None if printed is None else subprocess.STDOUT,
                    cwd=inside,
                    close_fds=output is not None,
                )
        except OSError as error:
            raise MeasureError(f"a run cannot be started: {error.strerror or error}") from None
        try:
            self._watch.follow(child, folder, report, TimeLeft())
        finally:
            folder.mask_secrets(plan)
        report.write_error = folder.write_error()
        return folder, report


def _states(path: Path) -> tuple[StepState, ...]:
    """Those that were written whole."""
    found = []
    with contextlib.suppress(OSError):
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(msgspec.MsgspecError):
                found.append(msgspec.json.decode(line, type=StepState))
    return tuple(found)
