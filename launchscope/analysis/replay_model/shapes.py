"""The gain of one graph for each of the input shapes that come back, or for each size to pad to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import chain, combinations
from statistics import median

import numpy as np

from launchscope.analysis.replay_model.gain import Projection
from launchscope.analysis.timing import StepTimes
from launchscope.model import ShapeBursts, ShapeReplay, ShapesResult
from launchscope.parser.trace import Floats, Ints, median_of

# A curve through noisy times goes through the medians of at most this many groups of sizes.
_KNOTS = 8
# A graph that shortens the time by less than this share is not worth its capture.
_NOT_WORTH_A_GRAPH = 0.02


def shape_replays(result: ShapesResult) -> tuple[ShapeReplay, ...]:
    """Each shape whose replay was measured, the most frequent one first."""
    ordered = sorted(result.shapes, key=lambda shape: -shape.steps)
    found = (_timed(shape, 100.0 * shape.steps / max(result.steps, 1)) for shape in ordered)
    return tuple(shape for shape in found if shape is not None)


def padded_replays(result: ShapesResult) -> tuple[tuple[ShapeReplay, ...], float | None]:
    """The steps padded to the sizes that take the least time, and how much of the padded inputs is
    padding, in percent. Other steps, for which a replay takes longer, stay eager; where it does for
    all of them, the largest size alone shows that."""
    measured = {_elements(shape): shape for shape in result.padded}
    eager = [
        (size, ms)
        for shape in measured.values()
        for size, ms in zip(shape.eager_sizes, chain.from_iterable(shape.eager_bursts))
    ]
    if not eager:
        return (), None
    count, edges = Counter(result.sizes), np.array(sorted(measured))
    sizes = np.array(sorted(size for size in count if size <= edges[-1]))
    steps = np.array([count[size] for size in sizes.tolist()])
    replay_ms = [_medians(measured[size].replay_bursts) for size in edges.tolist()]
    # A replay of a longer step is not faster. Where it was measured faster, that is noise.
    padded_ms = np.maximum.accumulate([median(each) for each in replay_ms])
    eager_ms = _curve(eager, sizes)
    graph = _graphs(edges, padded_ms, sizes, steps, eager_ms)
    if (graph < 0).all():
        graph[:] = len(edges) - 1
    found, filled, padded = [], 0, 0
    for row in np.flatnonzero(np.bincount(graph[graph >= 0])).tolist():
        inside = graph == row
        own = int(steps[inside].sum())
        mean = float(np.dot(steps[inside], eager_ms[inside])) / own
        saved = sorted(mean - ms for ms in replay_ms[row])
        shape, share = measured[int(edges[row])], 100.0 * own / result.steps
        replayed = median(replay_ms[row])
        found.append(ShapeReplay(shape.inputs, share, mean, replayed, saved[0], saved[-1]))
        filled += int(np.dot(steps[inside], sizes[inside]))
        padded += own * int(edges[row])
    return tuple(found), 100.0 * (1 - filled / padded)


def _graphs(edges: Ints, padded_ms: Floats, sizes: Ints, steps: Ints, eager_ms: Floats) -> Ints:
    """The row of the graph that serves each size, -1 where eager is faster: the fewest graphs whose
    time is near the best, because each of them has to be captured."""

    def rows(chosen: tuple[int, ...]) -> Ints:
        row = np.append(chosen, -1)[np.searchsorted(edges[list(chosen)], sizes)]
        return np.where((row >= 0) & (padded_ms[row] < eager_ms), row, -1)

    def total(chosen: tuple[int, ...]) -> float:
        row = rows(chosen)
        return float(steps @ np.where(row < 0, eager_ms, padded_ms[row]))

    counts = range(1, len(edges) + 1)
    best = [min(combinations(range(len(edges)), n), key=total) for n in counts]
    enough = min(map(total, best)) * (1 + _NOT_WORTH_A_GRAPH)
    return rows(next(chosen for chosen in best if total(chosen) <= enough))


def _curve(known: Sequence[tuple[int, float]], sizes: Ints) -> Floats:
    """Times at other sizes: linear between the medians of up to eight groups of equal count, with
    the slope of the line through all of them beyond the outermost groups."""
    x, y = np.asarray(sorted(known, key=lambda pair: pair[0]), float).T
    groups = np.array_split(np.arange(len(x)), min(_KNOTS, len(set(x))))
    mx, my = (np.array([median_of(values[group]) for group in groups]) for values in (x, y))
    kx = np.unique(mx)
    ky = np.array([median_of(my[mx == knot]) for knot in kx])
    slope = max(float(np.polyfit(kx, ky, 1)[0]), 0.0) if len(kx) > 1 else 0.0
    beyond = sizes - np.clip(sizes, kx[0], kx[-1])
    times: Floats = np.maximum(np.interp(sizes, kx, ky) + slope * beyond, 0.0)
    return times


def _elements(shape: ShapeBursts) -> int:
    return sum(math.prod(tensor.dims) for tensor in shape.inputs)


def _medians(bursts: Sequence[Sequence[float]]) -> list[float]:
    return [median(burst) for burst in bursts if burst]


def _timed(shape: ShapeBursts, share_pct: float) -> ShapeReplay | None:
    eager, replay = _medians(shape.eager_bursts), _medians(shape.replay_bursts)
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
    replayed = sum(shape.share_pct * shape.replay_ms for shape in shapes) / 100
    least = replayed + max(mean - float(np.mean(times.step)), 0.0)  # and what is between the steps
    most = 100.0 * (1 - max(times.loading_ms / iteration, least / mean))

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
