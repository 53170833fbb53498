"""Runs a script at several points and under several strategies, and compares what it measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from launchscope.analysis.comparison.points import crossover, same_work, with_rates
from launchscope.analysis.comparison.strategies import Trial, compare_strategies
from launchscope.config import Settings, convert
from launchscope.errors import (
    LaunchscopeError,
    MeasureError,
    ScriptError,
    UsageError,
)
from launchscope.model import (
    STRATEGIES,
    Comparison,
    Environment,
    Point,
    PointFailure,
    Reason,
    Schedule,
    Strategies,
    StrategyName,
    Target,
)
from launchscope.reason_text import failure_text
from launchscope.recorded import recorded
from launchscope.rules.verdict import strategies as strategy_rule
from launchscope.rules.verdict.crossover import SAME_WORK, headline_of
from launchscope.workflows.adopt import adopt
from launchscope.workflows.batch_sizes import PlannedPoint, planned_points
from launchscope.workflows.profile import ScriptRun, ScriptRunner
from launchscope.workflows.progress import Progress
from launchscope.workflows.signals import exit_code_of
from launchscope.workflows.target import relative, script_target

if TYPE_CHECKING:
    import pandas as pd

# Steps under a strategy that compile, warm up and are compared with eager before timing.
_SETTLING = 16


@dataclass(frozen=True)
class ComparePlan:
    target: Target
    settings: Settings
    points: tuple[PlannedPoint, ...]
    modes: tuple[StrategyName, ...] = ()


@dataclass(frozen=True)
class CompareResult:
    """The Comparison, and why it is not complete or compares nothing (None: it is fine)."""

    comparison: Comparison
    problem: LaunchscopeError | None = None

    @property
    def points(self) -> pd.DataFrame:
        """A row per point: its batch size and what was measured."""
        from launchscope.report import frames

        return frames.points(self.comparison)


def plan_compare(
    words: Sequence[str],
    settings: Settings,
    *,
    module: bool = False,
    batch_sizes: Sequence[int | str] | None = None,
    modes: Sequence[str] = (),
) -> ComparePlan:
    """What to run. Raises UsageError for anything that the script or launchscope does not know."""
    strategies = _strategies(modes)
    if batch_sizes is None and not strategies:
        raise UsageError(
            "there is nothing to compare",
            hint="give --batch-sizes 8,32,128 or --modes eager,replay,compile,graphed,adopt",
        )
    target = script_target(words, module=module, command="compare")
    points = planned_points(target, batch_sizes)
    return ComparePlan(target, settings, points, strategies)


def compare(plan: ComparePlan, progress: Progress) -> CompareResult:
    """Runs every point and strategy. A run that fails is a row, and an interrupt ends with what
    there is; MeasureError if that is nothing."""
    with ScriptRunner(plan.settings, progress) as runner:
        rows, code = _Rows(plan, runner, progress), None
        try:
            rows.measure()
        except _InterruptedError as error:
            code = error.exit_code
        except KeyboardInterrupt as error:  # between two runs
            code = exit_code_of(error)
    comparison = rows.comparison(interrupted=code is not None)
    if code is None:
        return CompareResult(comparison, _problem_of(comparison))
    if not comparison.points and not comparison.strategies:
        raise MeasureError("interrupted before anything was measured", exit_code=code)
    text = "interrupted; this is what was measured until then"
    return CompareResult(comparison, MeasureError(text, exit_code=code))


class _InterruptedError(MeasureError):
    """A run was interrupted, and so the comparison ends."""


def _strategies(names: Sequence[str]) -> tuple[StrategyName, ...]:
    """The strategies in their order; UsageError for an unknown one."""
    for name in names:
        convert(name, StrategyName, "--modes", UsageError)
    return tuple(mode for mode in STRATEGIES if mode in names)


@dataclass
class _Rows:
    """What a comparison has measured so far, in the `place` that is measured now."""

    plan: ComparePlan
    runner: ScriptRunner
    progress: Progress
    points: list[Point] = field(default_factory=list)
    strategies: list[Strategies] = field(default_factory=list)
    environments: list[Environment] = field(default_factory=list)
    place: str = ""

    def measure(self) -> None:
        every = self.plan.points
        for number, planned in enumerate(every, 1):
            if len(every) > 1:
                self.place = f"point {number} of {len(every)}: batch size {planned.batch_size}"
                self.progress.message(self.place)
            self._measure_point(planned)

    def _measure_point(self, planned: PlannedPoint) -> None:
        modes = self.plan.modes
        replay: ScriptRun | None = None
        if not modes or "replay" in modes:
            replay = self._run(planned, self.plan.settings.schedule)
            if not replay.interrupted or replay.profile is not None:
                point = Point(
                    recorded(planned.target),
                    planned.batch_size,
                    # A comparison shows no single step.
                    replay.profile and replace(replay.profile, timelines=None),
                    _failure_of(replay),
                )
                self.points.append(with_rates(point))
            _require_uninterrupted(replay)
        if modes:
            self._measure_strategies(planned, replay)

    def _measure_strategies(self, planned: PlannedPoint, replay: ScriptRun | None) -> None:
        """One run per strategy, eager first: it is what the others are compared with."""
        schedule = self.plan.settings.schedule
        schedule = dataclasses.replace(
            schedule, strategy=_SETTLING, inspect=0, replay=0, verify=0,
            timing=max(schedule.timing, 2),
        )  # fmt: skip
        eager: StrategyName = "eager"
        trials: list[Trial] = []
        run: ScriptRun | None = None
        for mode in [eager, *(mode for mode in self.plan.modes if mode != eager)]:
            if mode == "adopt":
                trials.append(self._adopt(planned))
                continue
            run = replay if mode == "replay" else None
            run = run or self._run(planned, schedule, mode)
            trials.append(Trial(mode, run.recording, run.profile, _failure_of(run)))
            if run.interrupted:
                break
        found = compare_strategies(trials, planned.batch_size)
        settings = self.plan.settings
        self.strategies.append(
            strategy_rule.advised(found, settings.threshold, settings.expected_steps)
        )
        _require_uninterrupted(run)

    def _adopt(self, planned: PlannedPoint) -> Trial:
        """The patch of the step, verified and timed as `launchscope adopt` does it."""
        try:
            made = adopt(planned.target, self.plan.settings, self.progress)
        except LaunchscopeError as error:
            failure = PointFailure(Reason("run_failed", {"error": str(error)}), hint=error.hint)
            return Trial("adopt", None, None, failure)
        return Trial("adopt", None, None, adoption=made)

    def _run(
        self, planned: PlannedPoint, schedule: Schedule, strategy: StrategyName | None = None
    ) -> ScriptRun:
        words = [planned.batch_size, strategy]
        run = self.runner.run(
            planned.target,
            schedule=schedule,
            strategy=strategy,
            label="".join(f"-{word}" for word in words if word),
        )
        source = run.profile or run.recording
        if source is not None and source.environment.torch is not None:
            self.environments.append(source.environment)
        return run

    def comparison(self, *, interrupted: bool) -> Comparison:
        """All of it in one value, with its headline."""
        threshold = self.plan.settings.threshold
        same = same_work(self.points)
        found = crossover(self.points, threshold)
        has_sizes = self.plan.points[0].batch_size is not None
        profiles = [point.profile for point in self.points if point.profile is not None]
        if has_sizes:
            headlines = [headline_of(self.points, found, same)]
        else:
            headlines = [part.headline for part in self.strategies]
        headline = " ".join(filter(None, headlines))
        if not headline and profiles and profiles[0].verdict is not None:
            headline = profiles[0].verdict.headline
        environment = self.environments[0] if self.environments else Environment()
        return Comparison(
            target=recorded(relative(self.plan.target)),
            environment=environment,
            mode="gpu" if environment.device is not None else "rehearsal",
            points=tuple(self.points),
            threshold_pct=threshold,
            headline=headline,
            crossover=found if has_sizes and self.points and not same else None,
            strategies=tuple(self.strategies),
            notes=(
                *([f"interrupted at {self.place}"] if interrupted and self.place else []),
                *([SAME_WORK] if same else []),
                *(dict.fromkeys(profiles[0].notes) if len(profiles) == 1 else ()),
            ),
        )


def _require_uninterrupted(run: ScriptRun | None) -> None:
    if run is not None and run.interrupted:
        code = None if run.problem is None else run.problem.exit_code
        raise _InterruptedError("interrupted", exit_code=code)


def _failure_of(run: ScriptRun) -> PointFailure | None:
    """The problem of a run as the row of a table says it."""
    error = run.problem
    if error is None or run.interrupted:
        return PointFailure(Reason("interrupted")) if run.interrupted else None
    code = error.exit_code if isinstance(error, ScriptError) else None
    if isinstance(error, ScriptError) and error.out_of_memory:
        partly = {"measured_in_part": int(run.profile is not None)}
        return PointFailure(Reason("script_out_of_memory", partly), code)
    return PointFailure(Reason("run_failed", {"error": str(error)}), code, hint=error.hint)


def _problem_of(comparison: Comparison) -> MeasureError | None:
    """Why a finished comparison compares nothing; None if it does."""
    tried = [strategy for strategies in comparison.strategies for strategy in strategies.tried]
    measured = any(point.profile is not None for point in comparison.points)
    if not measured and all(strategy.iteration_ms is None for strategy in tried):
        failures = [p.failure for p in comparison.points if p.failure]
        failures += [strategy.failure for strategy in tried if strategy.failure]
        return MeasureError(
            "nothing could be measured at any point"
            + (f"; first: {failure_text(failures[0])}" if failures else ""),
            hint=failures[0].hint if failures else None,
        )
    if same_work(comparison.points) and not comparison.strategies:
        return MeasureError(
            "nothing was compared: every point measured the same thing",
            hint=f"does {comparison.target.name} use the batch size that it gets?",
        )
    return None
