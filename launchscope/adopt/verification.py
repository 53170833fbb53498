"""Runs a script and its patched version, and decides whether the patch may be shown.

First the source: two runs of the original and one of the patch, all eager and deterministic, have
to do the same. Then the graph: one run in which each replay is computed eagerly as well. Then both
versions are timed in turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

from launchscope.adopt.child.deterministic import ENVIRONMENT
from launchscope.adopt.comparison import (
    NOTHING_COMPARED,
    Comparison,
    compare,
    compare_lines,
    first_inequality,
)
from launchscope.adopt.diff import runtime
from launchscope.adopt.marks import Marked, marked_original, marked_patched
from launchscope.adopt.mirror import Mirror, Project, environment
from launchscope.adopt.patch import Patch
from launchscope.adopt.record import COMPARED, Replays, RunTask
from launchscope.adopt.recorded_runs import RecordedRun, RecordedRuns
from launchscope.errors import MeasureError
from launchscope.model import Metric, Reason, ReasonCode, Target
from launchscope.reason_text import cause_of_death
from launchscope.runner.child.enter.machine import has_device, is_hidden
from launchscope.runner.protocol.folder import SourceTree
from launchscope.wording import duration

_CHECKED = 60  # calls of the graphed function that are computed eagerly, too
_REPLAYED_PCT = 90.0  # of the calls after the first capture
_FASTER_PCT = 2.0  # a smaller gain is none
_FEWEST_WINDOWS = 6  # of each version
_TIMED = 3  # runs of each version at most, where times differ
# Medians of two runs of one version that differ by more say that something else uses the machine.
_UNSTEADY_PCT = 15.0
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
    comparison: Comparison = NOTHING_COMPARED
    printed: int | None = None  # lines that agree; None: the original prints others in each run
    unreached: tuple[int, ...] = ()
    before: Metric | None = None
    after: Metric | None = None
    replayed_pct: float | None = None
    seeded: bool = False  # by launchscope: the script sets no seed
    runs: int = 0


def planned_runs() -> int:
    """As a rule; more where lines have not run yet, or times differ."""
    return 7 if has_device() and not is_hidden() else 4


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
        vendored: bool = False,
        steps: int = COMPARED,
        environ: Mapping[str, str] = MappingProxyType({}),
    ):
        self._runs, self._target, self._project, self._base = runs, target, project, base
        self._say, self._vendored = say, vendored
        self._steps, self._planned = steps, planned_runs()
        self._environment = {**environment(base), **environ}
        self._limit_s = runs.timeout_s
        self._made = 0
        self._took_s = 0.0  # the longest run so far
        self.exit_code: int | None = None  # of the last run
        self.raised: Any = None

    def use(self, runs: RecordedRuns) -> None:
        """The following runs are these."""
        self._runs = runs

    def first(self) -> RecordedRun:
        """The script as it is, for a few steps. Raises NotVerifiedError if it writes outside of its
        folder, fails, or has no steps."""
        self._announce("the original")
        run = self._run(None, RunTask("", "", mode="time", iterations=self._steps))
        self._require(run, "original_failed")
        assert run.result is not None
        if not run.result.optimizer_steps and not run.result.forwards:
            raise NotVerifiedError("no_training")
        return run

    def verify(self, patch: Patch) -> Verification:
        """Everything that can be verified on this machine."""
        try:
            return self._verify(patch)
        except NotVerifiedError as error:
            return Verification(error.reason, runs=self._made)

    def _verify(self, patch: Patch) -> Verification:
        original, changed = marked_original(patch), marked_patched(patch)
        if original is None or changed is None:
            raise NotVerifiedError("no_loop")
        found = self._verify_source(patch, original, changed)
        if found.graphs:
            found = self._verify_graph(patch, changed, found)
            found = self._timed(patch, original, changed, found)
        return replace(found, runs=self._made)

    def _announce(self, what: str) -> None:
        took = f", about {duration(self._took_s)}" if self._took_s else ""
        self._say(f"run {self._made + 1} of about {self._planned}: {what}{took}")

    # --------------------------------------------------------------------------- the source

    def _verify_source(self, patch: Patch, original: Marked, changed: Marked) -> Verification:
        task = RunTask("", "", iterations=self._steps, inner=tuple(sorted(patch.inner)))
        self._announce("the original, recorded")
        first = self._recorded(patch, original, task, "original_failed")
        unreached = _unreached(original, first)
        if unreached:
            lines = tuple(map(original.shifted, unreached))
            self._announce("again, until all lines of the loop have run")
            first = self._recorded(patch, original, replace(task, until=lines), "original_failed")
            unreached = _unreached(original, first)
        assert first.result is not None
        task = replace(task, iterations=first.result.iterations)
        self._announce("the original once more")
        second = self._recorded(patch, original, task, "original_failed")
        kind = first_inequality(first.iterations, second.iterations)
        if kind is not None:
            raise NotVerifiedError("unseeded_state" if kind == "state" else "unseeded_batches")
        self._announce("the changed script, eager")
        third = self._recorded(patch, changed, task, "patched_failed")
        assert third.result is not None
        comparison = compare(first.iterations, second.iterations, third.iterations)
        _require_equal(comparison)
        return Verification(
            graphs=third.result.graphs,
            comparison=comparison,
            printed=_printed_alike(first, second, third),
            unreached=unreached,
            seeded=not first.result.seeds_itself,
        )

    def _recorded(
        self, patch: Patch, marked: Marked, task: RunTask, code: ReasonCode
    ) -> RecordedRun:
        run = self._run((patch, marked.content), task)
        self._require(run, code)
        assert run.result is not None
        if run.result.iterations < _FEWEST:
            steps, wanted = run.result.iterations, _FEWEST
            raise NotVerifiedError("too_few_steps", steps=steps, wanted=wanted)
        return run

    # ---------------------------------------------------------------------------- the graph

    def _verify_graph(self, patch: Patch, changed: Marked, found: Verification) -> Verification:
        """Each replay of one run is computed eagerly as well. The run fails where they differ."""
        self._announce("each replay is compared with eager")
        task = RunTask("", "", mode="check", iterations=_CHECKED, eager=False)
        run = self._recorded(patch, changed, task, "graph_differs")
        assert run.result is not None
        pct, why = _replayed(run.result.replays)
        if pct < _REPLAYED_PCT:
            raise NotVerifiedError("not_replayed", pct=pct, why=why)
        return replace(found, replayed_pct=pct)

    def _timed(
        self, patch: Patch, original: Marked, changed: Marked, found: Verification
    ) -> Verification:
        """Milliseconds per iteration of both versions, in turn; again where the runs of one version
        differ, or the patch is not faster: a machine that others use as well can be slow for as
        long as a run."""
        before: list[tuple[float, ...]] = []
        after: list[tuple[float, ...]] = []
        for _ in range(_TIMED):
            for times, marked, eager in ((before, original, True), (after, changed, False)):
                self._announce("timing both versions in turn")
                task = RunTask("", "", mode="time", eager=eager)
                run = self._recorded(patch, marked, task, "patched_failed")
                assert run.result is not None
                times.append(run.result.window_ms)
            if _are_steady(before) and _are_steady(after) and _faster(before, after):
                break
        metrics = [Metric.of_samples([ms for run in runs for ms in run], "ms")
                   for runs in (before, after)]  # fmt: skip
        if min(len(metric.samples) for metric in metrics) < _FEWEST_WINDOWS:
            raise NotVerifiedError("too_few_timed", steps=COMPARED)
        if not _faster(before, after):
            values = {"before_ms": metrics[0].value or 0.0, "after_ms": metrics[1].value or 0.0}
            raise NotVerifiedError("not_faster", **values)
        return replace(found, before=metrics[0], after=metrics[1])

    # ----------------------------------------------------------------------------- one run

    def _run(self, version: tuple[Patch, bytes] | None, task: RunTask) -> RecordedRun:
        """In a copy of the project, in which the patch's file has this content."""
        self._made += 1
        place = self._base / str(self._made)
        try:
            mirror = Mirror(self._project, place)
            if version is not None:
                patch, content = version
                mirror.write(patch.file, content)
                task = replace(task, file=str(mirror.path_of(patch.file)))
                if self._vendored and not task.eager and task.mode == "time":
                    for name, text in runtime().items():
                        mirror.write(patch.file.parent / name, text)
        except OSError as error:
            raise MeasureError(
                f"the project cannot be copied for a run: {error.strerror or error}",
                hint="set TMPDIR to a writable folder with room",
            ) from None
        root, began, since_ns = str(self._project.root), time.monotonic(), time.time_ns()
        run = self._runs.run(
            mirror.target(self._target),
            replace(task, root=root, scratch=str(self._base)),
            place / "run",
            mirror.folder,
            {**self._environment, **(ENVIRONMENT if task.mode == "record" else {})},
            SourceTree(root, str(mirror.root)),
        )
        run = replace(run, files=mirror.written(since_ns))
        self._took_s = max(self._took_s, time.monotonic() - began)
        mirror.remove()
        return run

    def _require(self, run: RecordedRun, code: ReasonCode) -> None:
        """NotVerifiedError where a run did not go as it should."""
        report = run.report
        self.exit_code, self.raised = report.exit_code, report.script_error
        if report.signal is not None:
            raise MeasureError("interrupted", exit_code=128 + report.signal)
        if report.timed_out:
            raise NotVerifiedError("not_verified_within", seconds=self._limit_s or 0.0)
        if report.refused_write is not None:
            raise NotVerifiedError("writes_outside", path=report.refused_write)
        if report.own_failure is not None:
            raise NotVerifiedError("launchscope_failed", **report.own_failure.reason.details)
        if not run.went_well:
            raise NotVerifiedError(code, error=_error_of(run))


def _error_of(run: RecordedRun) -> str:
    """The last that a failed run printed, or the signal that ended it."""
    if run.report.script_error is None and (run.report.exit_code or 0) < 0:
        return f"ended by {cause_of_death(run.report.exit_code or 0)}"
    return run.said_last[:300] or "no message"


def _unreached(original: Marked, run: RecordedRun) -> tuple[int, ...]:
    assert run.result is not None
    ran = set(map(original.unshifted, run.result.lines))
    return tuple(line for line in original.statements if line not in ran)


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
    total = compare_lines(first.printed, second.printed, third.printed)
    texts: list[tuple[str, Any]] = [("", total)]
    for name in first.files:
        if name in second.files and not name.endswith(".py"):  # a copy of the changed script
            files = (first.files[name], second.files[name], third.files.get(name, ""))
            texts.append((name, compare_lines(*files)))
    for name, found in texts:
        if found is not None and not isinstance(found, int):
            file = {"file": name} if name else {}
            original, patched = found.original, found.patched
            raise NotVerifiedError("printed_differs", original=original, patched=patched, **file)
    counts = [count for _, count in texts if isinstance(count, int)]
    return sum(counts) if counts else None


def _replayed(replays: Replays) -> tuple[float, str]:
    """The share of calls after the first capture that were replays, in percent, and the words of
    `graphed` for most of the others."""
    later = replays.replayed + sum(calls for calls, _, _ in replays.reasons)
    why = "it was not captured"
    if replays.reasons:
        _, text, where = max(replays.reasons)
        why = f"{text} [{Path(where).name}]" if where else text
    return (100.0 * replays.replayed / later if later else 0.0), why


def _are_steady(runs: Sequence[tuple[float, ...]]) -> bool:
    """Whether two of these runs of one version took about as long."""
    medians = sorted(median(windows) for windows in runs if windows)
    near = 1 + _UNSTEADY_PCT / 100
    return len(medians) < 2 or any(b <= a * near for a, b in pairwise(medians))


def _faster(before: Sequence[tuple[float, ...]], after: Sequence[tuple[float, ...]]) -> bool:
    one, other = ([ms for run in runs for ms in run] for runs in (before, after))
    if not one or not other:
        return False
    return median(other) <= median(one) * (1 - _FASTER_PCT / 100)
