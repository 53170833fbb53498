"""How the shapes of many steps vary, and the bucket plan that follows from their times."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np

from launchscope.analysis.comparison.buckets import Chosen, choose_buckets
from launchscope.analysis.replay_model.prediction import Optimizer, predict, step_works
from launchscope.analysis.steps.iterations import find_iterations
from launchscope.analysis.steps.shapes import Varying, phases_of, varying_of
from launchscope.analysis.timeline.work import gather
from launchscope.errors import InputError
from launchscope.model import Bucket, BucketPlan, Profile, Recording, SizeCount
from launchscope.parser import read_trace

__all__ = ["bucket_plan", "curve"]

# Fewer observed steps say too little of how often a size comes.
FEW_STEPS = 20
# A curve through noisy times goes through the medians of so many groups of sizes.
_KNOTS = 8
# More graphs are not taken for less than this share of the time.
_NOT_WORTH_A_GRAPH = 0.02


def bucket_plan(
    recording: Recording,
    profile: Profile,
    *,
    max_graphs: int,
    memory_limit_mib: float | None = None,
) -> BucketPlan | None:
    """The plan for a script whose shapes vary; None where they do not, or were not counted.

    The time of an eager iteration at each size is measured. That of a replay is predicted from
    the traced steps and interpolated in the padded size; what lies outside of the step is
    taken from the projection of the whole iteration.
    """
    seen = recording.sizes
    if seen is None or len(seen.inputs) < 2:
        return None
    shapes = seen.inputs
    counts = Counter(shapes)
    if len(counts) < 2:
        return None
    varying = varying_of(shapes)
    if varying is None or len(set(varying.sizes)) < 2:
        return BucketPlan(
            "unplanned",
            len(shapes),
            tuple(SizeCount(inputs, n) for inputs, n in counts.most_common()),
            max_graphs=max_graphs,
            notes=("more than one dimension varies by itself: no plan of one size fits them",),
        )
    by_step = dict(zip(varying.steps, varying.sizes))
    # Of equal sizes all inputs agree: any of them tells the others.
    inputs_of = {size: shapes[step] for step, size in by_step.items()}
    per_size = Counter(varying.sizes)
    plan = BucketPlan(
        "growing" if varying.growing else "padded",
        len(shapes),
        tuple(SizeCount(inputs_of[size], per_size[size], size) for size in sorted(per_size)),
        dimension=varying.dimension,
        max_graphs=1 if varying.growing else max_graphs,
        memory_limit_mib=memory_limit_mib,
        phases=phases_of(varying, shapes),
        notes=()
        if len(shapes) >= FEW_STEPS
        else (f"only {len(shapes)} steps were seen: how often a size comes is a guess",),
    )
    return _timed(plan, recording, profile, varying)


def curve(sizes: Sequence[int], times: Sequence[float], at: Sequence[int]) -> list[float]:
    """Times at other sizes: linear between the medians of up to eight groups of equal count.

    Beyond the outermost group the slope of the line through all of them goes on.
    """
    order = np.argsort(sizes, kind="stable")
    x, y = np.asarray(sizes, float)[order], np.asarray(times, float)[order]
    groups = min(_KNOTS, len(set(sizes)))
    knots: dict[float, list[float]] = defaultdict(list)
    for group in np.array_split(np.arange(len(x)), groups):
        if len(group):
            knots[float(np.median(x[group]))].append(float(np.median(y[group])))
    kx = np.array(sorted(knots))
    ky = np.array([median(knots[value]) for value in kx])
    wanted = np.asarray(at, float)
    found = np.interp(wanted, kx, ky)
    if len(kx) > 1:
        slope = max(float(np.polyfit(kx, ky, 1)[0]), 0.0)
        below, above = wanted < kx[0], wanted > kx[-1]
        found[below] = ky[0] - slope * (kx[0] - wanted[below])
        found[above] = ky[-1] + slope * (wanted[above] - kx[-1])
        found = np.maximum(found, 0.0)
    return [float(value) for value in found]


def _timed(
    plan: BucketPlan, recording: Recording, profile: Profile, varying: Varying
) -> BucketPlan:
    """The plan with its times; as it is where nothing was timed or traced."""
    eager = _eager(recording, varying)
    try:
        replays = _replays(recording)
    except InputError as error:
        unread = f"the trace could not be read, so which buckets pay cannot be told: {error}"
        return replace(plan, notes=(*plan.notes, unread))
    if not eager or not replays:
        return replace(plan, notes=(*plan.notes, _untimed(recording, eager)))
    sizes = [count.size for count in plan.sizes if count.size is not None]
    counts = [count.steps for count in plan.sizes]
    alone = curve([s for s, _ in eager], [ms for _, ms in eager], sizes)
    replay = curve([s for s, _ in replays], [ms for _, ms in replays], sizes)
    rest = _rest(recording, profile)
    planned = [ms + rest for ms in replay]
    memory = _memory(recording, varying, sizes)
    if plan.kind == "growing":
        whole = max(planned)  # every step is as long as the longest, whatever it holds
        fits = not _over(plan, None if memory is None else memory[-1])
        graphed = tuple(fits and whole < ms for ms in alone)
        edges: tuple[int, ...] = (len(sizes) - 1,) if any(graphed) else ()
        total = float(np.dot(counts, np.minimum(alone, whole) if fits else alone))
    else:
        chosen = _fewest(counts, alone, planned, plan, memory)
        edges, graphed, total = chosen.edges, chosen.graphed, chosen.total
    return _filled(plan, sizes, counts, alone, planned, memory, edges, graphed, total, rest)


def _over(plan: BucketPlan, memory: float | None) -> bool:
    """Whether a graph of so many MiB is more than may be held."""
    limit = plan.memory_limit_mib
    return limit is not None and memory is not None and memory > limit


def _fewest(
    counts: Sequence[int],
    alone: Sequence[float],
    planned: Sequence[float],
    plan: BucketPlan,
    memory: Sequence[float] | None,
) -> Chosen:
    """The fewest graphs whose time is within 2 % of the best: each more has to be captured too."""
    most = plan.max_graphs or 1
    plans = [
        choose_buckets(counts, alone, planned, graphs, memory, plan.memory_limit_mib)
        for graphs in range(1, most + 1)
    ]
    enough = plans[-1].total * (1 + _NOT_WORTH_A_GRAPH)
    return next(chosen for chosen in plans if chosen.total <= enough)


def _filled(
    plan: BucketPlan,
    sizes: Sequence[int],
    counts: Sequence[int],
    alone: Sequence[float],
    planned: Sequence[float],
    memory: Sequence[float] | None,
    edges: tuple[int, ...],
    graphed: Sequence[bool],
    total: float,
    rest: float,
) -> BucketPlan:
    steps = sum(counts)
    others = plan.observed_steps - steps  # of another structure: they stay as they are
    bounds = [-1, *edges]
    buckets = tuple(
        Bucket(
            sizes[low + 1],
            sizes[high],
            sum(counts[i] for i in range(low + 1, high + 1) if graphed[i]),
            planned[high] - rest,
            None if memory is None else memory[high],
        )
        for low, high in pairwise(bounds)
    )
    edge_of = {i: next((e for e in edges if e >= i), None) for i in range(len(sizes))}
    covered = [(i, edge) for i, edge in edge_of.items() if edge is not None and graphed[i]]
    inside = sum(counts[i] for i, _ in covered)
    wide = sum(counts[i] * sizes[edge] for i, edge in covered)
    spare = sum(counts[i] * (sizes[edge] - sizes[i]) for i, edge in covered)
    eager_ms = float(np.dot(counts, alone)) / steps
    exact = float(np.dot(counts, np.minimum(alone, planned))) / steps
    notes = list(plan.notes)
    if plan.memory_limit_mib is not None and memory is None:
        notes.append("the memory of a step was not measured, so the limit was not applied")
    least = None if memory is None else memory[-1] if plan.kind == "growing" else min(memory)
    if _over(plan, least):
        held = least  # of no graph: what the smallest needs
    else:
        held = None if memory is None else sum(memory[edge] for edge in edges)
    if others and not plan.phases:
        notes.append(
            f"{others} of {plan.observed_steps} steps have inputs of another structure: they stay "
            "eager, and the times are those of the others"
        )
    return replace(
        plan,
        buckets=buckets,
        covered_pct=100 * inside / (steps + others),
        padding_pct=100 * spare / wide if wide else None,
        eager_ms=eager_ms,
        planned_ms=total / steps,
        exact_ms=exact if plan.kind == "padded" else None,
        removable_pct=100 * (1 - total / steps / eager_ms),
        memory_mib=held,
        notes=tuple(notes),
    )


def _untimed(recording: Recording, eager: Sequence[tuple[int, float]]) -> str:
    if recording.mode != "gpu":
        return "nothing ran on a GPU: which buckets pay is unknown"
    what = "no eager step was timed" if not eager else "no step of a known size was traced"
    return f"{what}: which buckets pay is unknown"


def _eager(recording: Recording, varying: Varying) -> list[tuple[int, float]]:
    seen = recording.sizes
    assert seen is not None
    return [
        (size, ms)
        for step, size in zip(varying.steps, varying.sizes)
        if step < len(seen.iteration_ms) and (ms := seen.iteration_ms[step]) is not None
    ]


def _replays(recording: Recording) -> list[tuple[int, float]]:
    """Predicted replay, in ms, of each traced step with its size.

    Raises InputError when the trace is not there or cannot be read.
    """
    traced = recording.trace
    if traced is None or not traced.inputs:
        return []
    trace = read_trace(Path(recording.directory) / traced.file)
    iterations = find_iterations(trace, traced.drop_first)
    if iterations is None or len(iterations) != len(traced.inputs):
        return []
    inspected = recording.inspect
    optimizer = (
        Optimizer(inspected.uncapturable_tensors, inspected.uncapturable_groups)
        if inspected is not None
        else Optimizer()
    )
    works = step_works(gather(trace, iterations))
    seen = recording.sizes
    assert seen is not None
    # The same structure and the same dimension as in the many steps.
    varying = varying_of([*seen.inputs, *traced.inputs])
    if varying is None:
        return []
    offset = len(seen.inputs)
    size_of = {step - offset: size for step, size in zip(varying.steps, varying.sizes)}
    return [
        (size_of[int(row)], predict(work, optimizer).ms)
        for row, work in zip(iterations.used, works)
        if int(row) in size_of and work.busy_ms > 0
    ]


def _rest(recording: Recording, profile: Profile) -> float:
    """Milliseconds of an iteration beside the replay of its step."""
    projected = profile.value("projected_iteration_ms")
    replay = profile.value("replay_ms")
    replay = profile.value("predicted_replay_ms") if replay is None else replay
    if projected is not None and replay is not None:
        return max(0.0, projected - replay)
    seen = recording.sizes
    assert seen is not None
    between = [
        iteration - step
        for iteration, step in zip(seen.iteration_ms, seen.step_ms)
        if iteration is not None and step is not None
    ]
    return max(0.0, median(between)) if between else 0.0


def _memory(recording: Recording, varying: Varying, sizes: Sequence[int]) -> list[float] | None:
    """MiB that a graph of each size holds: what its step needed beyond what it began with."""
    seen = recording.sizes
    assert seen is not None
    known = [
        (size, peak)
        for step, size in zip(varying.steps, varying.sizes)
        if step < len(seen.peak_mib) and (peak := seen.peak_mib[step]) is not None
    ]
    if not known:
        return None
    return curve([size for size, _ in known], [peak for _, peak in known], sizes)
