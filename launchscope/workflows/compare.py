"""Runs a script at several points and under several strategies, and compares what it measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING

from launchscope.config import Settings
from launchscope.errors import LaunchscopeError, MeasureError, ScriptError, UsageError
from launchscope.model import (
    STRATEGIES,
    BucketPlan,
    Comparison,
    Environment,
    Ladder,
    Point,
    PointFailure,
    Recording,
    StrategyName,
    Target,
)
from launchscope.workflows.axes import Axis, Combination, axes_of, combinations
from launchscope.workflows.progress import Progress
from launchscope.workflows.recording import ScriptRun, ScriptRunner
from launchscope.workflows.script_flags import options_of
from launchscope.workflows.signals import exit_code_of
from launchscope.workflows.target import relative

if TYPE_CHECKING:
    from launchscope.analysis.comparison.ladder import Trial

# Steps whose shapes a bucket plan looks at, and how many of them are traced.
_SIZES, _TRACED = 100, 16
# Steps under a strategy that compile, warm up and are compared with eager before timing.
_SETTLING = 16


@dataclass(frozen=True)
class ComparePlan:
    """What a comparison runs."""

    target: Target
    settings: Settings
    axes: tuple[Axis, ...] = ()
    modes: tuple[StrategyName, ...] = ()
    buckets: bool = False


@dataclass(frozen=True)
class CompareResult:
    """The Comparison, and why it is not complete or compares nothing (None: it is fine)."""

    comparison: Comparison
    problem: LaunchscopeError | None = None


def plan_compare(
    target: Target,
    settings: Settings,
    *,
    batch_sizes: Sequence[int | str] | None = None,
    batch_flag: str | None = None,
    parameters: Mapping[str, Sequence[object]] = MappingProxyType({}),
    modes: Sequence[str] = (),
    buckets: bool = False,
) -> ComparePlan:
    """What to run; UsageError for anything that the script or launchscope does not know."""
    strategies = _strategies(modes)
    if batch_sizes is None and not (parameters or strategies or buckets):
        raise UsageError(
            "there is nothing to compare",
            hint="give --batch-sizes 8,32,128, --param NAME=a,b, "
            "--modes eager,replay,compile,graphed or --buckets",
        )
    axes = axes_of(
        target,
        options_of(target),
        batch_sizes=batch_sizes,
        parameters=parameters,
        batch_flag=batch_flag,
    )
    return ComparePlan(target, settings, axes, strategies, buckets)


def compare(plan: ComparePlan, progress: Progress) -> CompareResult:
    """Run every point and strategy in order.

    A run that fails is a row, and an interrupt ends with what there is. Raises MeasureError if
    it is interrupted before the first row.
    """
    with ScriptRunner(plan.settings, progress) as runner:
        rows = _Rows(plan, runner, progress)
        interrupt = rows.measure()
    comparison = rows.comparison()
    if interrupt is not None:
        if not comparison.points and not comparison.ladders:
            raise MeasureError(
                "interrupted before anything was measured", exit_code=interrupt.exit_code
            )
        text = "interrupted; this is what was measured until then"
        return CompareResult(comparison, MeasureError(text, exit_code=interrupt.exit_code))
    return CompareResult(comparison, _problem_of(comparison))


def _strategies(names: Sequence[str]) -> tuple[StrategyName, ...]:
    """In the order of the ladder; UsageError for an unknown or repeated one."""
    for name in names:
        if name not in STRATEGIES:
            near = get_close_matches(name, STRATEGIES, n=1, cutoff=0.4)
            raise UsageError(
                f"--modes: unknown mode {name!r}" if name else "--modes: a name is missing",
                hint=f"did you mean {near[0]}?" if near else f"known: {', '.join(STRATEGIES)}",
            )
        if names.count(name) > 1:
            raise UsageError(f"--modes: {name} is given twice", hint="each mode runs once")
    return tuple(mode for mode in STRATEGIES if mode in names)


@dataclass
class _Rows:
    """What a comparison has measured so far."""

    plan: ComparePlan
    runner: ScriptRunner
    progress: Progress
    points: list[Point] = field(default_factory=list)
    ladders: list[Ladder] = field(default_factory=list)
    plans: list[BucketPlan] = field(default_factory=list)
    environments: list[Environment] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def measure(self) -> LaunchscopeError | None:
        """Run everything; the interrupt that ended it early, or None."""
        every = combinations(self.plan.axes, self.plan.target)
        for number, combination in enumerate(every, 1):
            name = ", ".join(f"{key} {value}" for key, value in combination.parameters.items())
            if len(every) > 1:
                self.progress.on_message(f"point {number} of {len(every)}: {name}")
            try:
                interrupt = self._measure_point(combination, name)
            except KeyboardInterrupt as error:  # between two runs
                interrupt = MeasureError("interrupted", exit_code=exit_code_of(error))
            if interrupt is not None:
                if len(every) > 1:
                    self.notes.append(f"interrupted at point {number} of {len(every)}: {name}")
                return interrupt
        return None

    def _measure_point(self, combination: Combination, name: str) -> LaunchscopeError | None:
        modes, buckets = self.plan.modes, self.plan.buckets
        replay: ScriptRun | None = None
        if not modes or "replay" in modes or buckets:
            schedule = self.plan.settings.schedule
            if buckets:
                traced = max(schedule.trace, _TRACED) if schedule.trace else 0
                schedule = replace(schedule, sizes=_SIZES, trace=traced)
            replay = self._run(combination, schedule=schedule)
            if not replay.interrupted or replay.profile is not None:
                self.points.append(_point_of(combination, replay))
            plan = self._bucket_plan(replay, combination)
            if plan is not None:
                self.plans.append(plan)
            elif buckets and replay.recording is not None:
                self.notes.append(_why_no_plan(replay.recording, name))
            if replay.interrupted:
                return replay.problem
        return self._climb(combination, replay) if modes else None

    def _climb(
        self, combination: Combination, replay: ScriptRun | None
    ) -> LaunchscopeError | None:
        """One run per strategy, eager first: it is what the others are compared with."""
        from launchscope.analysis.comparison.ladder import Trial, ladder_of
        from launchscope.rules.verdict.ladder import advised

        schedule = self.plan.settings.schedule
        schedule = replace(
            schedule, adoption=_SETTLING, inspect=0, replay=0, verify=0,
            timing=max(schedule.timing, 2),
        )  # fmt: skip
        eager: StrategyName = "eager"
        trials: list[Trial] = []
        interrupt: LaunchscopeError | None = None
        for mode in [eager, *(mode for mode in self.plan.modes if mode != eager)]:
            if mode == "replay" and replay is not None:
                run = replay
            else:
                run = self._run(combination, schedule=schedule, adopt=mode)
            trials.append(Trial(mode, run.recording, run.profile, _failure_of(run)))
            if run.interrupted:
                interrupt = run.problem
                break
        ladder = ladder_of(trials, combination.parameters)
        self.ladders.append(advised(ladder, self.plan.settings.threshold))
        return interrupt
