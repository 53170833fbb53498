"""The bucket plan for a script whose shapes vary: padded sizes with a graph for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from pathlib import Path
from statistics import median

import numpy as np

from launchscope.analysis.replay_model.bucket_sizes import Chosen, curve, fewest_buckets
from launchscope.analysis.replay_model.prediction import Optimizer, predict, step_works
from launchscope.analysis.steps.iterations import find_iterations
from launchscope.analysis.steps.shapes import Varying, phases_of, varying_of
from launchscope.analysis.timeline.work import gather
from launchscope.errors import InputError
from launchscope.frozen import dataclass
from launchscope.model import (
    Bucket,
    BucketPlan,
    Profile,
    Reason,
    Recording,
    SizeCount,
    SizesResult,
)
from launchscope.parser import read_trace
from launchscope.wording import plural

# With fewer observed steps, how often a size comes is a guess.
FEW_STEPS = 20


@dataclass(frozen=True)
class _Times:
    """Of each observed size, ascending: its steps, and an iteration and its `rest` outside the step
    in ms. `memory` is what a graph of each size holds in MiB; None: not measured."""

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

    Eager iterations are measured at each size. Replays are predicted from the traced steps and
    interpolated over the padded size; the rest comes from the projection of the iteration.
    """
    seen = recording.sizes
    if seen is None or len(set(seen.inputs)) < 2:
        return None
    shapes = seen.inputs
    varying = varying_of(shapes)
    if varying is None or len(set(varying.sizes)) < 2:
        return BucketPlan(
            "unplanned",
            len(shapes),
            tuple(SizeCount(inputs, n) for inputs, n in Counter(shapes).most_common()),
            max_graphs=max_graphs,
            notes=("several dimensions vary independently, and a bucket plan covers only one",),
        )
    # All inputs of one size agree.
    inputs_of = {size: shapes[step] for step, size in zip(varying.steps, varying.sizes)}
    per_size = Counter(varying.sizes)
    few = f"only {plural(len(shapes), 'step')} were observed, so the share of each size is a guess"
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
    if isinstance(times, Reason):
        return replace(plan, times_unknown=times)
    return _with_buckets(plan, times)


def _times(
    recording: Recording, profile: Profile, seen: SizesResult, varying: Varying, steps: Counter[int]
) -> _Times | Reason:
    """What each size takes, or the reason why that is unknown."""
    eager = _by_size(varying, seen.iteration_ms)
    if recording.mode != "gpu":
        return Reason("sizes_without_gpu")
    try:
        replays = _replays(recording, seen)
    except InputError as error:
        return Reason("trace_unreadable", {"error": str(error)})
    if not eager or not replays:
        return Reason("sizes_not_traced" if eager else "sizes_not_timed")
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
    """Predicted replay, in ms, of each traced step with its size; InputError without its trace."""
    traced = recording.trace
    if traced is None or not traced.inputs:
        return []
    trace = read_trace(Path(recording.directory) / traced.file)
    iterations = find_iterations(trace, traced.drop_first)
    # The same structure and dimension as in the steps whose sizes were counted.
    varying = varying_of([*seen.inputs, *traced.inputs])
    if iterations is None or len(iterations) != len(traced.inputs) or varying is None:
        return []
    optimizer = Optimizer.of(recording.inspect)
    offset = len(seen.inputs)
    size_of = {step - offset: size for step, size in zip(varying.steps, varying.sizes)}
    return [
        (size_of[int(row)], predict(work, optimizer).ms)
        for row, work in zip(iterations.used, step_works(gather(trace, iterations)))
        if int(row) in size_of and work.busy_ms > 0
    ]


def _rest(profile: Profile, seen: SizesResult) -> float:
    """Milliseconds of an iteration outside the replay of its step."""
    iteration, replay = profile.value("replayed_iteration_ms"), profile.value("replay_ms")
    replay = profile.value("predicted_replay_ms") if replay is None else replay
    if iteration is not None and replay is not None:
        return max(0.0, iteration - replay)
    pairs = zip(seen.iteration_ms, seen.step_ms)
    between = [whole - step for whole, step in pairs if whole is not None and step is not None]
    return max(0.0, median(between)) if between else 0.0


def _with_buckets(plan: BucketPlan, times: _Times) -> BucketPlan:
    """The plan with the buckets that take the least time, and with that time."""
    chosen = _chosen(plan, times)
    edges, total, graphed = chosen.edges, chosen.total, np.array(chosen.graphed)
    sizes, counts, memory = np.array(times.sizes), np.array(times.steps), times.memory
    steps = int(counts.sum())
    others = plan.observed_steps - steps  # steps with inputs of another structure
    buckets = tuple(
        Bucket(
            times.sizes[low + 1],
            times.sizes[high],
            int(counts[low + 1 : high + 1][graphed[low + 1 : high + 1]].sum()),
            times.replayed[high] - times.rest,
            None if memory is None else memory[high],
        )
        for low, high in pairwise([-1, *edges])
    )
    padded_to = np.repeat(sizes[list(edges)], np.diff([-1, *edges]))
    covered = np.flatnonzero(graphed)
    padded = (counts[covered] * padded_to[covered]).sum()
    padding = padded - (counts[covered] * sizes[covered]).sum()
    eager_ms = float(np.dot(counts, times.eager)) / steps
    exact_ms = float(np.dot(counts, np.minimum(times.eager, times.replayed))) / steps
    notes = list(plan.notes)
    if plan.memory_limit_mib is not None and memory is None:
        notes.append("the memory of a step was not measured, so the limit was not applied")
    held = None
    if memory is not None:
        smallest = memory[-1] if plan.kind == "growing" else min(memory)
        exceeds = plan.memory_limit_mib is not None and smallest > plan.memory_limit_mib
        held = smallest if exceeds else sum(memory[edge] for edge in edges)
    if others and not plan.phases:
        notes.append(
            f"the inputs of {plural(others, 'step')} have another structure: a graph serves only "
            f"the other {plan.observed_steps - others}, and the times are theirs"
        )
    return replace(
        plan,
        buckets=buckets,
        covered_pct=float(100 * counts[covered].sum() / plan.observed_steps),
        padding_pct=float(100 * padding / padded) if padded else None,
        eager_ms=eager_ms,
        planned_ms=total / steps,
        exact_ms=exact_ms if plan.kind == "padded" else None,
        removable_pct=100 * (1 - total / steps / eager_ms),
        memory_mib=held,
        notes=tuple(notes),
    )


def _chosen(plan: BucketPlan, times: _Times) -> Chosen:
    if plan.kind == "growing":
        longest = max(times.replayed)  # with a static cache every step takes as long as the longest
        fits = not times.memory or times.memory[-1] <= (plan.memory_limit_mib or inf)
        graphed = tuple(fits and longest < ms for ms in times.eager)
        eager = np.minimum(times.eager, longest) if fits else times.eager
        edges = (len(times.sizes) - 1,) if any(graphed) else ()
        return Chosen(edges, float(np.dot(times.steps, eager)), graphed)
    known = times.steps, times.eager, times.replayed
    return fewest_buckets(*known, plan.max_graphs or 1, times.memory, plan.memory_limit_mib)
