"""Runs every point and every way to adopt, and joins them into a Comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from launchscope.cli.console import Console
from launchscope.config import Settings
from launchscope.model import (
    BucketPlan,
    Comparison,
    Environment,
    Ladder,
    Point,
    Recording,
    Schedule,
    StrategyName,
    Target,
)
from launchscope.workflows.axes import Axis, Combination
from launchscope.workflows.points import PointResult, Runner, point_of, relative
from launchscope.workflows.signals import exit_code_of

# Steps that a bucket plan looks at beside what the passes see, and the traced ones among them.
SIZES, TRACED = 100, 16
# Steps after a way to adopt was put in that compile, warm up and are compared with eager's.
SETTLING = 16


@dataclass(frozen=True)
class CompareResult:
    comparison: Comparison
    measured: bool  # anything at all
    interrupted: bool


def measure(
    runner: Runner,
    target: Target,
    axes: Sequence[Axis],
    combinations: Sequence[Combination],
    ways: tuple[StrategyName, ...],
    wants_buckets: bool,
    settings: Settings,
    screen: Console,
) -> CompareResult:
    """Runs all of it, in order; a run that fails is a row, and an interrupt ends with what there
    is."""
    points: list[Point] = []
    ladders: list[Ladder] = []
    plans: list[BucketPlan] = []
    environments: list[Environment] = []
    notes: list[str] = []
    interrupted = False
    for number, combination in enumerate(combinations, 1):
        named = ", ".join(f"{name} {value}" for name, value in combination.parameters.items())
        if len(combinations) > 1:
            screen.progress(f"point {number} of {len(combinations)}: {named}")
        try:
            whole: PointResult | None = None
            if not ways or "replay" in ways or wants_buckets:
                whole = runner.run(combination, schedule=_schedule(settings, wants_buckets))
                if not whole.interrupted or whole.profile is not None:
                    points.append(point_of(combination, whole))
                interrupted = whole.interrupted
                _note_environment(whole, environments)
                plan = _plan(whole, combination, settings)
                if plan is not None:
                    plans.append(plan)
                elif wants_buckets and whole.recording is not None:
                    notes.append(_no_plan(whole.recording, named))
            if ways and not interrupted:
                ladder, interrupted = _climb(
                    runner, combination, ways, whole, settings, environments
                )
                ladders.append(ladder)
        except KeyboardInterrupt as error:  # between two runs
            runner.exit_code = exit_code_of(error)
            interrupted = True
        if interrupted:
            if len(combinations) > 1:
                notes.append(f"interrupted at point {number} of {len(combinations)}: {named}")
            break
    return CompareResult(
        _joined(target, axes, points, ladders, plans, environments, notes, settings),
        any(point.profile is not None for point in points)
        or any(rung.iteration_ms is not None for ladder in ladders for rung in ladder.rungs),
        interrupted,
    )


def _schedule(settings: Settings, wants_buckets: bool) -> Schedule:
    plain = settings.schedule
    if not wants_buckets:
        return plain
    return replace(plain, sizes=SIZES, trace=max(plain.trace, TRACED) if plain.trace else 0)


def _note_environment(ran: PointResult, environments: list[Environment]) -> None:
    if ran.profile is not None:
        environments.append(ran.profile.environment)
    elif ran.recording is not None and ran.recording.environment.torch is not None:
        environments.append(ran.recording.environment)


def _plan(ran: PointResult, combination: Combination, settings: Settings) -> BucketPlan | None:
    from launchscope.analysis.comparison.sizes import bucket_plan
    from launchscope.rules.verdict.bucket_plan import advised

    if ran.recording is None or ran.profile is None:
        return None
    plan = bucket_plan(
        ran.recording,
        ran.profile,
        max_graphs=settings.max_graphs,
        memory_limit_mib=settings.graph_memory,
    )
    if plan is None:
        return None
    return advised(replace(plan, parameters=combination.parameters), settings.threshold)


def _no_plan(recording: Recording, named: str) -> str:
    seen = recording.sizes
    at = f" with {named}" if named else ""
    if seen is None or not any(seen.inputs):
        return f"the shapes of the steps were not seen{at}: there is no bucket plan"
    steps = len(seen.inputs)
    return f"the inputs had one shape in all {steps} steps{at}: there is nothing to bucket"


def _climb(
    runner: Runner,
    combination: Combination,
    ways: tuple[StrategyName, ...],
    whole: PointResult | None,
    settings: Settings,
    environments: list[Environment],
) -> tuple[Ladder, bool]:
    """One rung after the other, eager first: it is what the others are compared with."""
    from launchscope.analysis.comparison.ladder import Trial, ladder_of
    from launchscope.rules.verdict.ladder import advised

    plain = settings.schedule
    schedule = replace(
        plain, adoption=SETTLING, inspect=0, replay=0, verify=0, timing=max(plain.timing, 2)
    )
    eager: StrategyName = "eager"
    trials: list[Trial] = []
    interrupted = False
    for way in [eager, *(way for way in ways if way != eager)]:
        if way == "replay":
            assert whole is not None
            ran = whole
        else:
            ran = runner.run(combination, schedule=schedule, adopt=way)
            _note_environment(ran, environments)
        trials.append(Trial(way, ran.recording, ran.profile, ran.failure))
        if ran.interrupted:
            interrupted = True
            break
    ladder = ladder_of(trials, combination.parameters)
    return advised(ladder, settings.threshold), interrupted


def _joined(
    target: Target,
    axes: Sequence[Axis],
    points: Sequence[Point],
    ladders: Sequence[Ladder],
    plans: Sequence[BucketPlan],
    environments: Sequence[Environment],
    notes: list[str],
    settings: Settings,
) -> Comparison:
    from launchscope.analysis.comparison.crossover import crossovers
    from launchscope.analysis.comparison.points import same_work
    from launchscope.rules.verdict.crossover import SAME_WORK, headline_of

    same = same_work(points)
    found = crossovers(points, settings.threshold)
    if same:
        notes.append(SAME_WORK)
        found = ()
    profiles = [point.profile for point in points if point.profile is not None]
    headlines = [
        headline_of(points, found, same) if axes else "",
        *(ladder.headline for ladder in ladders if not axes),
        *(plan.headline for plan in plans if not axes and not ladders),
    ]
    headline = " ".join(filter(None, headlines))
    if not headline and profiles and profiles[0].verdict is not None:
        headline = profiles[0].verdict.headline
    environment = environments[0] if environments else Environment()
    notes += dict.fromkeys(
        note for profile in profiles for note in profile.notes if len(profiles) == 1
    )
    return Comparison(
        target=relative(target),
        environment=environment,
        mode="gpu" if environment.device is not None else "rehearsal",
        axes={axis.name: axis.values for axis in axes},
        points=tuple(points),
        threshold_pct=settings.threshold,
        headline=headline,
        crossovers=found,
        ladders=tuple(ladders),
        buckets=tuple(plans),
        notes=tuple(notes),
    )
