"""The gain of one graph for each of the input shapes that come back, or for each size to pad to."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import chain, pairwise
from statistics import median

import numpy as np

from launchscope.analysis.replay_model.bucket_sizes import curve, fewest_buckets
from launchscope.analysis.replay_model.gain import Projection
from launchscope.analysis.timing import StepTimes
from launchscope.model import ShapeBursts, ShapeReplay, ShapesResult


def shape_replays(result: ShapesResult | None) -> tuple[ShapeReplay, ...]:
    """Each shape whose replay was measured, the most frequent one first."""
    if result is None:
        return ()
    ordered = sorted(result.shapes, key=lambda shape: -shape.steps)
    found = (_timed(shape, 100.0 * shape.steps / max(result.steps, 1)) for shape in ordered)
    return tuple(shape for shape in found if shape is not None)


def padded_replays(result: ShapesResult | None) -> tuple[tuple[ShapeReplay, ...], float | None]:
    """The steps padded to the sizes that take the least time, and how much of the padded inputs is
    padding, in percent. Other steps, for which a replay takes longer, stay eager; where it does for
    all of them, the largest size alone shows that."""
    measured = {} if result is None else {_elements(shape): shape for shape in result.padded}
    eager = [
        (size, ms)
        for shape in measured.values()
        for size, ms in zip(shape.eager_sizes, chain.from_iterable(shape.eager_bursts))
    ]
    if result is None or not eager:
        return (), None
    count, edges = Counter(result.sizes), sorted(measured)
    sizes = sorted(size for size in count if size <= edges[-1])
    graph_of = [edges[bisect_left(edges, size)] for size in sizes]
    replay_ms = {size: _replays(measured[size]) for size in edges}
    eager_ms, steps = np.array(curve(eager, sizes)), np.array([count[size] for size in sizes])
    replay = [median(replay_ms[graph]) for graph in graph_of]
    chosen = fewest_buckets(list(steps), list(eager_ms), replay, len(edges))
    kept, ends = np.array(chosen.graphed), chosen.edges
    if not kept.any():
        kept, ends = np.ones(len(sizes), bool), (len(sizes) - 1,)
    found, filled, padded = [], 0, 0
    for low, high in pairwise((-1, *ends)):
        inside = np.flatnonzero(kept[low + 1 : high + 1]) + low + 1
        graph, own = measured[graph_of[high]], int(steps[inside].sum())
        if not own:
            continue
        mean = float(np.dot(steps[inside], eager_ms[inside])) / own
        saved = sorted(mean - ms for ms in replay_ms[graph_of[high]])
        share = 100.0 * own / result.steps
        replayed = replay[high]
        found.append(ShapeReplay(graph.inputs, share, mean, replayed, saved[0], saved[-1]))
        filled += int(np.dot(steps[inside], np.array(sizes)[inside]))
        padded += own * graph_of[high]
    return tuple(found), 100.0 * (1 - filled / padded)


def _elements(shape: ShapeBursts) -> int:
    return sum(math.prod(tensor.dims) for tensor in shape.inputs)


def _medians(bursts: Sequence[Sequence[float]]) -> list[float]:
    return [median(burst) for burst in bursts if burst]


def _replays(shape: ShapeBursts) -> list[float]:
    """The time of each burst, with what a fix of the blocking operations would not leave out."""
    return [ms + shape.left_out_ms for ms in _medians(shape.replay_bursts)]


def _timed(shape: ShapeBursts, share_pct: float) -> ShapeReplay | None:
    eager, replay = _medians(shape.eager_bursts), _replays(shape)
    if not eager or not replay:
        return None
    bounds = (max(0.0, min(eager) - max(replay)), max(eager) - min(replay))
    return ShapeReplay(shape.inputs, share_pct, median(eager), median(replay), *bounds)


def project_shapes(times: StepTimes, shapes: tuple[ShapeReplay, ...]) -> Projection | None:
    """The iteration where each of these shapes has a graph, weighted by how often it occurs. The
    steps of other shapes stay eager. None if no iteration was timed."""
    iteration, step = times.iteration_ms, times.step_ms
    if not shapes or not iteration or not step:
        return None
    mean = float(np.mean(times.iteration))  # shapes that are rare and slow count as well
    most = 100.0 * (1 - times.loading_ms / iteration)

    def share(saved_ms: list[float]) -> float:
        weighted = (shape.share_pct * saved for shape, saved in zip(shapes, saved_ms))
        return min(sum(weighted) / mean, most)

    removed = share([shape.eager_ms - shape.replay_ms for shape in shapes])
    low = share([shape.least_saved_ms for shape in shapes])
    high = share([shape.most_saved_ms for shape in shapes])
    return Projection(
        iteration,
        iteration * (1 - removed / 100),
        low_pct=low,
        high_pct=high,
        source="subtracted",
        step_pct=min(removed * mean / float(np.mean(times.step)), 100.0),
    )
