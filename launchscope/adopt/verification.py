"""Runs a script and its patched version, and decides whether the patch may be shown.

First the source: two runs of the original and one of the patch, all eager and deterministic, have
to do the same. Then the graph: one run in which each replay is computed eagerly as well. Then both
versions are timed in turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from launchscope.adopt.child.deterministic import ENVIRONMENT
from launchscope.adopt.comparison import Comparison, compare, compare_lines, first_inequality
from launchscope.adopt.marks import Marked, marked_at, marked_patched
from launchscope.adopt.mirror import Mirror, Project, environment
from launchscope.adopt.observation import OBSERVATION, Observation
from launchscope.adopt.patch import Patch
from launchscope.adopt.record import COMPARED, RunResult, RunTask
from launchscope.adopt.recorded_runs import RecordedRun, RecordedRuns
from launchscope.errors import MeasureError
from launchscope.model import Metric, Reason, ReasonCode, Target
from launchscope.reason_text import cause_of_death
from launchscope.runner.child.enter.machine import has_device, is_hidden
from launchscope.runner.parent.run_folder import RunFolder
from launchscope.runner.protocol.folder import SourceTree
from launchscope.wording import duration

_CHECKED = 60  # calls of the graphed function that are computed eagerly, too
_REPLAYED_PCT = 90.0  # of the calls after the first capture
_FASTER_PCT = 2.0  # a smaller gain is none
_FEWEST_WINDOWS = 6  # of each version
_TIMED = 3  # runs of each version at most
_FEWEST = 3  # steps that have to be there


class NotVerifiedError(Exception):
    """The patch must not be shown."""

    def __init__(self, code: ReasonCode, **details: str | int | float):
        super().__init__(code)
        self.reason = Reason(code, details)


@dataclass(frozen=True)
class Verification:
    """What the runs have shown. `reason` None: the patch is equal and, on a GPU, replayed and
    faster. `unreached`: lines around the step, of the original, that no compared iteration ran."""

    reason: Reason | None = None
    graphs: bool = False  # CUDA graphs were made, and not only eager calls
    comparison: Comparison = field(default_factory=Comparison)
    printed: int | None = None  # lines that agree; None: the original prints others in each run
    unreached: tuple[int, ...] = ()
    before: Metric | None = None
    after: Metric | None = None
    replayed_pct: float | None = None
    seeded: bool = False  # by launchscope: the script sets no seed
    runs: int = 0


def planned_runs() -> int:
    """As a rule; more where lines have not run yet, or the patch is not faster."""
    return 8 if has_device() and not is_hidden() else 5


class Verifier:
    """Runs of one script, each in a copy of its project below `base`. `say` gets what a person who
    waits may want to know."""

    def __init__(
        self,
        runs: RecordedRuns,
        target: Target,
        project: Project,
        base: Path,
        say: Callable[[str], None],
        *,
        steps: int = COMPARED,
    ):
        self.runs = runs
        self._target, self._project, self._base = target, project, base
        self._say, self._steps, self._planned = say, steps, planned_runs()
        self._environment = environment(base)
        self._made = 0
        self._took_s = 0.0  # the longest run so far
        self.exit_code: int | None = None  # of the last run
        self.raised: Any = None

    def first(self) -> RunResult:
        """The script as it is, for a few steps. Raises NotVerifiedError if it writes outside of its
        folder, fails, or has no steps."""
        task = RunTask("first", self._steps)
        _, result = self._run("the original", {}, task, "original_failed")
        if not result.optimizer_steps and not result.forwards:
            raise NotVerifiedError("no_training")
        return result

    def observe(self, file: Path, marked: bytes, *, trains: bool) -> Observation:
        """What lines around the step do, in a copy of the file that says where an iteration begins.
        Raises NotVerifiedError."""
        task = RunTask("observe", trains=trains)
        run, _ = self._run("the step, line by line", {file: marked}, task, "original_failed")
        seen = RunFolder(run.place).read(OBSERVATION, Observation)
        if seen is None:
            raise NotVerifiedError("too_few_steps", steps=0, wanted=_FEWEST)
        return seen

    def verify(self, patch: Patch) -> Verification:
        """Everything that can be verified on this machine."""
        try:
            found = self._verify_source(patch)
            if found.graphs:
                pct = self._verify_graph(patch)
                before, after = self._timed(patch)
                found = replace(found, replayed_pct=pct, before=before, after=after)
            return replace(found, runs=self._made)
        except NotVerifiedError as error:
            return Verification(error.reason, runs=self._made)

    # --------------------------------------------------------------------------- the source

    def _verify_source(self, patch: Patch) -> Verification:
        # What the patch changes beside the step is changed in both.
        original = _present(marked_at(patch.before, patch.first_line, patch.reference))
        files = {patch.file: original.content}
        wanted = tuple(original.lines)
        task = RunTask("record", self._steps, wanted, tuple(sorted(patch.inner)))
        first, result = self._recorded("the original, until all its lines have run", files, task)
        unreached = tuple(line for line in wanted if line not in result.lines)
        task = replace(task, iterations=result.compared, until=())
        if result.iterations > self._steps:  # it went on, to search
            first, _ = self._recorded("the original, recorded", files, task)
        second, _ = self._recorded("the original once more", files, task)
        kind = first_inequality(first.iterations, second.iterations)
        if kind is not None:
            raise NotVerifiedError("unseeded_state" if kind == "state" else "unseeded_batches")
        changed = {patch.file: _present(marked_patched(patch)).content}
        what = "the changed script, eager"
        third, patched = self._recorded(what, changed, task, "patched_failed")
        comparison = compare(first.iterations, second.iterations, third.iterations)
        _require_equal(comparison)
        return Verification(
            graphs=patched.graphs,
            comparison=comparison,
            printed=_printed_alike(first, second, third),
            unreached=tuple(original.lines[line] for line in unreached),
            seeded=not result.seeds_itself,
        )

    def _recorded(
        self,
        what: str,
        files: Mapping[Path, bytes],
        task: RunTask,
        code: ReasonCode = "original_failed",
    ) -> tuple[RecordedRun, RunResult]:
        run, result = self._run(what, files, task, code)
        if result.iterations < _FEWEST:
            raise NotVerifiedError("too_few_steps", steps=result.iterations, wanted=_FEWEST)
        return run, result

    # ---------------------------------------------------------------------------- the graph

    def _verify_graph(self, patch: Patch) -> float:
        """Each replay of one run is computed eagerly as well. The run fails where they differ. The
        result is the share of calls after the first capture that were replays, in percent."""
        content = _present(marked_patched(patch)).content
        task = RunTask("check", _CHECKED, eager=False)
        what = "each replay is compared with eager"
        _, result = self._recorded(what, {patch.file: content}, task, "graph_differs")
        calls = result.replayed + sum(count for count, _, _ in result.eager)
        pct = 100.0 * result.replayed / calls if calls else 0.0
        if pct < _REPLAYED_PCT:
            _, text, where = max(result.eager, default=(0, "it was not captured", ""))
            file, _, line = where.rpartition(":")
            if Path(file).name == patch.file.name:
                line = str(_line_before(patch, content, int(line)))
            why = f"{text} [{Path(file).name}:{line}]" if file else text
            raise NotVerifiedError("not_replayed", pct=pct, why=why)
        return pct

    def _timed(self, patch: Patch) -> tuple[Metric, Metric]:
        """Milliseconds per iteration of both, in turn; again where the patch is not faster,
        because a machine that others use can be slow for as long as a run."""
        original = {patch.file: _present(marked_at(patch.before, patch.first_line)).content}
        changed = {patch.file: _present(marked_patched(patch)).content}
        windows: tuple[list[float], list[float]] = [], []
        for _ in range(_TIMED):
            for times, files in zip(windows, (original, changed)):
                task = RunTask("time", eager=files is original)
                what = "timing both versions in turn"
                times += self._recorded(what, files, task, "patched_failed")[1].window_ms
            if min(map(len, windows)) < _FEWEST_WINDOWS:
                raise NotVerifiedError("too_few_timed", steps=COMPARED)
            before, after = map(median, windows)
            if after <= before * (1 - _FASTER_PCT / 100):
                return Metric.of_samples(windows[0], "ms"), Metric.of_samples(windows[1], "ms")
        raise NotVerifiedError("not_faster", before_ms=before, after_ms=after)

    # ----------------------------------------------------------------------------- one run

    def _run(
        self, what: str, files: Mapping[Path, bytes], task: RunTask, code: ReasonCode
    ) -> tuple[RecordedRun, RunResult]:
        """In a copy of the project, in which files have these contents."""
        took = f", about {duration(self._took_s)}" if self._took_s else ""
        self._say(f"run {self._made + 1} of about {self._planned}: {what}{took}")
        self._made += 1
        mirror = self._mirror(files)
        root, began, since_ns = str(self._project.root), time.monotonic(), time.time_ns()
        file = str(mirror.path_of(next(iter(files)))) if files else ""
        run = self.runs.run(
            mirror.target(self._target),
            replace(task, root=root, scratch=str(self._base), file=file),
            self._base / str(self._made) / "run",
            mirror.folder,
            {**self._environment, **(ENVIRONMENT if task.mode == "record" else {})},
            SourceTree(root, str(mirror.root)),
        )
        run = replace(run, files=mirror.written(since_ns))
        self._took_s = max(self._took_s, time.monotonic() - began)
        mirror.remove()
        return run, self._required(run, code)

    def _mirror(self, files: Mapping[Path, bytes]) -> Mirror:
        try:
            mirror = Mirror(self._project, self._base / str(self._made))
            for file, content in files.items():
                mirror.write(file, content)
            return mirror
        except OSError as error:
            raise MeasureError(
                f"the project cannot be copied for a run: {error.strerror or error}",
                hint="set TMPDIR to a writable folder with room",
            ) from None

    def _required(self, run: RecordedRun, code: ReasonCode) -> RunResult:
        """NotVerifiedError where a run did not go as it should."""
        report = run.report
        self.exit_code, self.raised = report.exit_code, report.script_error
        if report.signal is not None:
            raise MeasureError("interrupted", exit_code=128 + report.signal)
        if report.timed_out:
            raise NotVerifiedError("not_verified_within", seconds=self.runs.timeout_s or 0.0)
        if report.refused_write is not None:
            raise NotVerifiedError("writes_outside", path=report.refused_write)
        if report.own_failure is not None:
            raise NotVerifiedError("launchscope_failed", **report.own_failure.reason.details)
        if run.result is None or run.failed:
            raise NotVerifiedError(code, error=_error_of(run))
        return run.result


def _present(marked: Marked | None) -> Marked:
    if marked is None:
        raise NotVerifiedError("no_loop")
    return marked


def _line_before(patch: Patch, content: bytes, line: int) -> int:
    """The line of the person's file for one of the changed file; where that is a new one, the first
    of the step."""
    after, before = ([t.strip() for t in text.splitlines()] for text in (content, patch.before))
    text = after[line - 1]
    places = [number for number, other in enumerate(before, 1) if other == text]
    count = after[:line].count(text)
    return places[min(count, len(places)) - 1] if places else patch.first_line


def _error_of(run: RecordedRun) -> str:
    """The last that a failed run printed, or the signal that ended it."""
    if run.report.script_error is None and (run.report.exit_code or 0) < 0:
        return f"ended by {cause_of_death(run.report.exit_code or 0)}"
    return run.said_last[:300] or "no message"


def _require_equal(comparison: Comparison) -> None:
    found = comparison.difference
    if found is not None:
        raise NotVerifiedError(
            "value_differs",
            unit=found.iteration,
            kind=str(found.kind),
            name=found.name,
            original=found.original,
            patched=found.patched,
        )


def _printed_alike(first: RecordedRun, second: RecordedRun, third: RecordedRun) -> int | None:
    """The lines that are printed and written to files alike. Raises NotVerifiedError."""
    counts = []
    for name, *texts in _texts(first, second, third):
        found = compare_lines(*texts)
        if isinstance(found, int):
            counts.append(found)
        elif found is not None:
            file = {"file": name} if name else {}
            original, patched = found.original, found.patched
            raise NotVerifiedError("printed_differs", original=original, patched=patched, **file)
    return sum(counts) if counts else None


def _texts(*runs: RecordedRun) -> Iterator[tuple[str, str, str, str]]:
    """What they printed, and the files that both originals or neither wrote, with their names."""
    first, second, third = runs
    yield "", first.printed, second.printed, third.printed
    for name in {**first.files, **third.files}:
        alike = (name in first.files) == (name in second.files)
        if alike and not name.endswith(".py"):  # a copy of the changed script
            texts = (run.files.get(name, "") for run in runs)
            yield name, *texts  # type: ignore[misc]
