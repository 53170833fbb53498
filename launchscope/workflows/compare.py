"""Runs a script at several points and under several strategies, and compares what it measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import TYPE_CHECKING

from launchscope.config import Settings
from launchscope.errors import (
    LaunchscopeError,
    MeasureError,
    MissingOptionError,
    ScriptError,
    UsageError,
)
from launchscope.model import (
    STRATEGIES,
    BucketPlan,
    Comparison,
    Environment,
    Ladder,
    Point,
    PointFailure,
    Reason,
    Recording,
    Schedule,
    StrategyName,
    Target,
)
from launchscope.reason_text import failure_text
from launchscope.workflows.axes import Axis, Combination, axes_of, combinations
from launchscope.workflows.progress import Progress
from launchscope.workflows.recording import ScriptRun, ScriptRunner
from launchscope.workflows.script_flags import options_of
from launchscope.workflows.signals import exit_code_of
from launchscope.workflows.target import relative, script_target, without_python

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
    words: Sequence[str],
    settings: Settings,
    *,
    module: bool = False,
    batch_sizes: Sequence[int | str] | None = None,
    batch_flag: str | None = None,
    parameters: Mapping[str, Sequence[object]] = MappingProxyType({}),
    modes: Sequence[str] = (),
    buckets: bool = False,
) -> ComparePlan:
    """What to run. `words` are the script and its arguments; without any, the settings have them.

    Raises UsageError for anything that the script or launchscope does not know.
    """
    strategies = _strategies(modes)
    if batch_sizes is None and not (parameters or strategies or buckets):
        raise MissingOptionError(
            "there is nothing to compare",
            hint="give --batch-sizes 8,32,128, --param NAME=a,b, "
            "--modes eager,replay,compile,graphed or --buckets",
        )
    if not words and settings.command is not None:
        words, configured_module = without_python(settings.command)
        module = module or configured_module
    target = script_target(words, module=module, command="compare")
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
                self.progress.message(f"point {number} of {len(every)}: {name}")
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
        from launchscope.analysis.comparison.points import with_rates

        modes, buckets = self.plan.modes, self.plan.buckets
        replay: ScriptRun | None = None
        if not modes or "replay" in modes or buckets:
            schedule = self.plan.settings.schedule
            if buckets:
                traced = max(schedule.trace, _TRACED) if schedule.trace else 0
                schedule = replace(schedule, sizes=_SIZES, trace=traced)
            replay = self._run(combination, schedule)
            if not replay.interrupted or replay.profile is not None:
                point = Point(
                    combination.parameters,
                    combination.target,
                    combination.batch_size,
                    replay.profile,
                    _failure_of(replay),
                )
                self.points.append(with_rates(point))
            plan = self._bucket_plan(replay, combination)
            if plan is not None:
                self.plans.append(plan)
            elif buckets and replay.recording is not None:
                self.notes.append(_why_no_plan(replay.recording, name))
            if replay.interrupted:
                return replay.problem
        return self._climb(combination, replay) if modes else None

    def _climb(self, combination: Combination, replay: ScriptRun | None) -> LaunchscopeError | None:
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
                run = self._run(combination, schedule, mode)
            trials.append(Trial(mode, run.recording, run.profile, _failure_of(run)))
            if run.interrupted:
                interrupt = run.problem
                break
        ladder = ladder_of(trials, combination.parameters)
        self.ladders.append(advised(ladder, self.plan.settings.threshold))
        return interrupt

    def _run(
        self, combination: Combination, schedule: Schedule, strategy: StrategyName | None = None
    ) -> ScriptRun:
        words = [*combination.parameters.values(), *([strategy] if strategy else [])]
        run = self.runner.run(
            combination.target,
            schedule=schedule,
            environ=combination.environ,
            strategy=strategy,
            label="".join(f"-{word}" for word in words),
        )
        if run.profile is not None:
            self.environments.append(run.profile.environment)
        elif run.recording is not None and run.recording.environment.torch is not None:
            self.environments.append(run.recording.environment)
        return run

    def _bucket_plan(self, run: ScriptRun, combination: Combination) -> BucketPlan | None:
        from launchscope.analysis.comparison.sizes import bucket_plan
        from launchscope.rules.verdict.bucket_plan import advised

        if run.recording is None or run.profile is None:
            return None
        settings = self.plan.settings
        plan = bucket_plan(
            run.recording,
            run.profile,
            max_graphs=settings.max_graphs,
            memory_limit_mib=settings.graph_memory,
        )
        if plan is None:
            return None
        return advised(replace(plan, parameters=combination.parameters), settings.threshold)

    def comparison(self) -> Comparison:
        """All of it in one value, with its headline."""
        from launchscope.analysis.comparison.crossover import crossovers
        from launchscope.analysis.comparison.points import same_work
        from launchscope.rules.verdict.crossover import SAME_WORK, headline_of

        axes, threshold = self.plan.axes, self.plan.settings.threshold
        same = same_work(self.points)
        found = () if same else crossovers(self.points, threshold)
        profiles = [point.profile for point in self.points if point.profile is not None]
        headlines = [
            headline_of(self.points, found, same) if axes else "",
            *(ladder.headline for ladder in self.ladders if not axes),
            *(plan.headline for plan in self.plans if not axes and not self.ladders),
        ]
        headline = " ".join(filter(None, headlines))
        if not headline and profiles and profiles[0].verdict is not None:
            headline = profiles[0].verdict.headline
        environment = self.environments[0] if self.environments else Environment()
        return Comparison(
            target=relative(self.plan.target),
            environment=environment,
            mode="gpu" if environment.device is not None else "rehearsal",
            axes={axis.name: axis.values for axis in axes},
            points=tuple(self.points),
            threshold_pct=threshold,
            headline=headline,
            crossovers=found,
            ladders=tuple(self.ladders),
            buckets=tuple(self.plans),
            notes=(
                *self.notes,
                *([SAME_WORK] if same else []),
                *(dict.fromkeys(profiles[0].notes) if len(profiles) == 1 else ()),
            ),
        )


def _why_no_plan(recording: Recording, name: str) -> str:
    at = f" with {name}" if name else ""
    if recording.sizes is None or not any(recording.sizes.inputs):
        return f"no bucket plan{at}: the shapes of the steps were not seen"
    steps = len(recording.sizes.inputs)
    return f"the inputs had one shape in all {steps} steps{at}: there is nothing to bucket"


def _failure_of(run: ScriptRun) -> PointFailure | None:
    """The problem of a run as the row of a table says it."""
    error = run.problem
    if error is None or run.interrupted:
        return PointFailure(Reason("interrupted")) if run.interrupted else None
    if not isinstance(error, ScriptError):
        return PointFailure(Reason("run_failed", {"error": str(error)}), hint=error.hint)
    if error.exception != "OutOfMemoryError":
        reason = Reason("run_failed", {"error": str(error)})
        return PointFailure(reason, error.exit_code, hint=error.hint)
    partly = {"measured_in_part": int(run.profile is not None)}
    return PointFailure(Reason("script_out_of_memory", partly), error.exit_code)


def _problem_of(comparison: Comparison) -> MeasureError | None:
    """Why a finished comparison compares nothing; None if it does."""
    from launchscope.analysis.comparison.points import same_work

    rungs = [rung for ladder in comparison.ladders for rung in ladder.rungs]
    measured = any(point.profile is not None for point in comparison.points)
    if not measured and all(rung.iteration_ms is None for rung in rungs):
        failures = [*(p.failure for p in comparison.points), *(r.failure for r in rungs)]
        first = next(filter(None, failures), None)
        return MeasureError(
            "nothing could be measured at any point"
            + (f"; first: {failure_text(first)}" if first else ""),
            hint=first.hint if first else None,
        )
    if same_work(comparison.points) and not (comparison.ladders or comparison.buckets):
        return MeasureError(
            "nothing was compared: every point measured the same thing",
            hint=f"does {comparison.target.name} use the batch size that it gets?",
        )
    return None
