"""The bucket plan for a script whose shapes vary: which sizes come how often, what each takes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import numpy as np

from launchscope.analysis.comparison.buckets import choose_buckets
from launchscope.analysis.replay_model.prediction import Optimizer, predict, step_works
from launchscope.analysis.steps.iterations import find_iterations
from launchscope.analysis.steps.shapes import Varying, phases_of, varying_of
from launchscope.analysis.timeline.work import gather
from launchscope.errors import InputError
from launchscope.model import Bucket, BucketPlan, Profile, Recording, SizeCount, SizesResult
from launchscope.parser import read_trace

# With fewer observed steps, how often a size comes is a guess.
FEW_STEPS = 20
# A curve through noisy times goes through the medians of at most this many groups of sizes.
_KNOTS = 8
# A graph that shortens the time by less than this share is not worth its capture.
_NOT_WORTH_A_GRAPH = 0.02


@dataclass(frozen=True)
class _Times:
    """For each observed size, ascending: how many steps have it, and what an iteration takes.

    `rest` is the part of an iteration that is not in the step, in ms. `memory` is the MiB that a
    graph of each size holds; None: not measured.
    """

    sizes: list[int]
    steps: list[int]
    eager: list[float]
    replayed: list[float]
    rest: float
    memory: list[float] | None


def bucket_plan(
    recording: Recording,
    profile: Profile,
    *,
    max_graphs: int,
    memory_limit_mib: float | None = None,
) -> BucketPlan | None:
    """The plan for a script whose shapes vary; None where they do not, or were not counted.

    The time of an eager iteration at each size is measured. That of a replay is predicted from the
    traced steps and interpolated in the padded size; the time outside the step comes from the
    projection of the whole iteration.
    """
    seen = recording.sizes
    counts = Counter(seen.inputs) if seen is not None else Counter()
    if seen is None or len(counts) < 2:
        return None
    shapes = seen.inputs
    varying = varying_of(shapes)
    if varying is None or len(set(varying.sizes)) < 2:
        return BucketPlan(
            "unplanned",
            len(shapes),
            tuple(SizeCount(inputs, n) for inputs, n in counts.most_common()),
            max_graphs=max_graphs,
            notes=("more than one dimension varies by itself: no plan of one size fits them",),
        )
    # All inputs of one size agree.
    inputs_of = {size: shapes[step] for step, size in zip(varying.steps, varying.sizes)}
    per_size = Counter(varying.sizes)
    few = f"only {len(shapes)} steps were observed: how often a size comes is a guess"
    plan = BucketPlan(
        "growing" if varying.growing else "padded",
        len(shapes),
        tuple(SizeCount(inputs_of[size], per_size[size], size) for size in sorted(per_size)),
        dimension=varying.dimension,
        max_graphs=1 if varying.growing else max_graphs,
        memory_limit_mib=memory_limit_mib,
        phases=phases_of(varying, shapes),
        notes=() if len(shapes) >= FEW_STEPS else (few,),
    )
    times = _times(recording, profile, seen, varying, per_size)
    if isinstance(times, str):
        return replace(plan, notes=(*plan.notes, times))
    return _with_buckets(plan, times)


def curve(known: Sequence[tuple[int, float]], sizes: Sequence[int]) -> list[float]:
    """Times at other sizes: linear between the medians of up to eight groups of equal count, with
    the slope of the line through all of them beyond the outermost groups."""
    x, y = np.asarray(sorted(known, key=lambda pair: pair[0]), float).T
    groups = min(_KNOTS, len(set(x)))
    knots: dict[float, list[float]] = defaultdict(list)
    for group in np.array_split(np.arange(len(x)), groups):
        if len(group):
            knots[float(np.median(x[group]))].append(float(np.median(y[group])))
    kx = np.array(sorted(knots))
    ky = np.array([median(knots[value]) for value in kx])
    wanted = np.asarray(sizes, float)
    found = np.interp(wanted, kx, ky)
    if len(kx) > 1:
        slope = max(float(np.polyfit(kx, ky, 1)[0]), 0.0)
        below, above = wanted < kx[0], wanted > kx[-1]
        found[below] = ky[0] - slope * (kx[0] - wanted[below])
        found[above] = ky[-1] + slope * (wanted[above] - kx[-1])
        found = np.maximum(found, 0.0)
    return [float(value) for value in found]


def _times(
    recording: Recording, profile: Profile, seen: SizesResult, varying: Varying, steps: Counter[int]
) -> _Times | str:
    """What the sizes take; the reason where nothing was timed or traced."""
    eager = _by_size(varying, seen.iteration_ms)
    if recording.mode != "gpu":
        return "nothing was timed without a GPU, so which buckets pay is unknown"
    try:
        replays = _replays(recording, seen)
    except InputError as error:
        return f"the trace cannot be read, so which buckets pay is unknown: {error}"
    if not eager or not replays:
        missing = "no step of a known size was traced" if eager else "no eager step was timed"
        return f"{missing}, so which buckets pay is unknown"
    sizes = sorted(steps)
    rest = _rest(profile, seen)
    peaks = _by_size(varying, seen.peak_mib)
    return _Times(
        sizes,
        [steps[size] for size in sizes],
        curve(eager, sizes),
        [ms + rest for ms in curve(replays, sizes)],
        rest,
        curve(peaks, sizes) if peaks else None,
    )


def _by_size(varying: Varying, values: Sequence[float | None]) -> list[tuple[int, float]]:
    """The values of the steps whose size is known, with their sizes."""
    return [
        (size, value)
        for step, size in zip(varying.steps, varying.sizes)
        if step < len(values) and (value := values[step]) is not None
    ]


def _replays(recording: Recording, seen: SizesResult) -> list[tuple[int, float]]:
    """Predicted replay, in ms, of each traced step with its size.

    Raises InputError when the trace is missing or cannot be read.
    """
    traced = recording.trace
    if traced is None or not traced.inputs:
        return []
    trace = read_trace(Path(recording.directory) / traced.file)
    iterations = find_iterations(trace, traced.drop_first)
    # The same structure and the same dimension as in the many steps.
    varying = varying_of([*seen.inputs, *traced.inputs])
    if iterations is None or len(iterations) != len(traced.inputs) or varying is None:
        return []
    optimizer, inspected = Optimizer(), recording.inspect
    if inspected is not None:
        optimizer = Optimizer(inspected.uncapturable_tensors, inspected.uncapturable_groups)
    offset = len(seen.inputs)
    size_of = {step - offset: size for step, size in zip(varying.steps, varying.sizes)}
    return [
        (size_of[int(row)], predict(work, optimizer).ms)
        for row, work in zip(iterations.used, step_works(gather(trace, iterations)))
        if int(row) in size_of and work.busy_ms > 0
    ]


def _rest(profile: Profile, seen: SizesResult) -> float:
    """Milliseconds of an iteration beside the replay of its step."""
    projected = profile.value("projected_iteration_ms")
    replay = profile.value("replay_ms")
    replay = profile.value("predicted_replay_ms") if replay is None else replay
    if projected is not None and replay is not None:
        return max(0.0, projected - replay)
    between = [
        iteration - step
        for iteration, step in zip(seen.iteration_ms, seen.step_ms)
        if iteration is not None and step is not None
    ]
    return max(0.0, median(between)) if between else 0.0


def _with_buckets(plan: BucketPlan, times: _Times) -> BucketPlan:
    """The plan with the buckets that take the least time, and with that time."""
    edges, graphed, total = _chosen(plan, times)
    sizes, counts, memory = times.sizes, times.steps, times.memory
    steps = sum(counts)
    others = plan.observed_steps - steps  # steps with inputs of another structure
    buckets = tuple(
        Bucket(
            sizes[low + 1],
            sizes[high],
            sum(counts[i] for i in range(low + 1, high + 1) if graphed[i]),
            times.replayed[high] - times.rest,
            None if memory is None else memory[high],
        )
        for low, high in pairwise([-1, *edges])
    )
    edge_of = {i: next((e for e in edges if e >= i), None) for i in range(len(sizes))}
    covered = [(i, edge) for i, edge in edge_of.items() if edge is not None and graphed[i]]
    padded = sum(counts[i] * sizes[edge] for i, edge in covered)
    padding = sum(counts[i] * (sizes[edge] - sizes[i]) for i, edge in covered)
    eager_ms = float(np.dot(counts, times.eager)) / steps
    exact_ms = float(np.dot(counts, np.minimum(times.eager, times.replayed))) / steps
    notes = list(plan.notes)
    if plan.memory_limit_mib is not None and memory is None:
        notes.append("the memory of a step was not measured, so the limit was not applied")
    held = None if memory is None else sum(memory[edge] for edge in edges)
    smallest = None if memory is None else memory[-1] if plan.kind == "growing" else min(memory)
    if _exceeds_limit(plan, smallest):
        held = smallest
    if others and not plan.phases:
        notes.append(
            f"{others} of {plan.observed_steps} steps have inputs of another structure: they stay "
            "eager, and the times are those of the others"
        )
    return replace(
        plan,
        buckets=buckets,
        covered_pct=100 * sum(counts[i] for i, _ in covered) / (steps + others),
        padding_pct=100 * padding / padded if padded else None,
        eager_ms=eager_ms,
        planned_ms=total / steps,
        exact_ms=exact_ms if plan.kind == "padded" else None,
        removable_pct=100 * (1 - total / steps / eager_ms),
        memory_mib=held,
        notes=tuple(notes),
    )


def _chosen(plan: BucketPlan, times: _Times) -> tuple[tuple[int, ...], Sequence[bool], float]:
    """The padded sizes, which sizes run a graph, and the time of all steps."""
    if plan.kind == "growing":
        longest = max(times.replayed)  # every step is as long as the longest, whatever it holds
        fits = not _exceeds_limit(plan, times.memory[-1] if times.memory else None)
        graphed = [fits and longest < ms for ms in times.eager]
        eager = np.minimum(times.eager, longest) if fits else times.eager
        edges = (len(times.sizes) - 1,) if any(graphed) else ()
        return edges, graphed, float(np.dot(times.steps, eager))
    plans = [
        choose_buckets(
            times.steps, times.eager, times.replayed, graphs, times.memory, plan.memory_limit_mib
        )
        for graphs in range(1, (plan.max_graphs or 1) + 1)
    ]
    # The fewest graphs whose time is near the best: each of them has to be captured, too.
    enough = plans[-1].total * (1 + _NOT_WORTH_A_GRAPH)
    chosen = next(chosen for chosen in plans if chosen.total <= enough)
    return chosen.edges, chosen.graphed, chosen.total


def _exceeds_limit(plan: BucketPlan, memory: float | None) -> bool:
    """Whether a graph that needs this many MiB exceeds the limit."""
    limit = plan.memory_limit_mib
    return limit is not None and memory is not None and memory > limit
