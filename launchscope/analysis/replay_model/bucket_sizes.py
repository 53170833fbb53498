"""Which sizes to pad to: the buckets that take the least time, each with a graph of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from launchscope.frozen import dataclass
from launchscope.parser.trace import Ints, median_of

# A curve through noisy times goes through the medians of at most this many groups of sizes.
_KNOTS = 8
# A graph that shortens the time by less than this share is not worth its capture.
_NOT_WORTH_A_GRAPH = 0.02
# The memory limit is divided into this many parts, and the need of a graph is rounded up to one.
PARTS = 256


def curve(known: Sequence[tuple[int, float]], sizes: Sequence[int]) -> list[float]:
    """Times at other sizes: linear between the medians of up to eight groups of equal count, with
    the slope of the line through all of them beyond the outermost groups."""
    x, y = np.asarray(sorted(known, key=lambda pair: pair[0]), float).T
    groups = np.array_split(np.arange(len(x)), min(_KNOTS, len(set(x))))
    mx, my = (np.array([median_of(values[group]) for group in groups]) for values in (x, y))
    kx = np.unique(mx)
    ky = np.array([median_of(my[mx == knot]) for knot in kx])
    wanted = np.asarray(sizes, float)
    found = np.interp(wanted, kx, ky)
    if len(kx) > 1:
        slope = max(float(np.polyfit(kx, ky, 1)[0]), 0.0)
        below, above = wanted < kx[0], wanted > kx[-1]
        found[below] = ky[0] - slope * (kx[0] - wanted[below])
        found[above] = ky[-1] + slope * (wanted[above] - kx[-1])
        found = np.maximum(found, 0.0)
    return list(map(float, found))


@dataclass(frozen=True)
class Chosen:
    """`edges` index the sizes to pad to, ascending; `total` is the time of all steps."""

    edges: tuple[int, ...]
    total: float
    graphed: tuple[bool, ...]  # of each size; one that is slower when padded stays eager


def choose_buckets(
    counts: Sequence[float],
    eager: Sequence[float],
    replay: Sequence[float],
    max_graphs: int,
    memory: Sequence[float] | None = None,
    limit: float | None = None,
) -> Chosen:
    """The buckets that minimize the time of all steps, for distinct sizes in ascending order.

    `counts[i]` steps of size i take `eager[i]` each without a graph, and `replay[j]` padded to
    size j >= i. A step above every bucket, or faster eagerly, stays eager. The graphs together
    hold at most `limit` of `memory`, to one part in 256 of it, rounded up. Of equal plans the one
    with the fewest graphs is taken. Exact, by dynamic programming over the sizes: lowering a
    bucket to the largest size it serves makes no step slower.
    """
    count, alone = np.asarray(counts, np.float64), np.asarray(eager, np.float64)
    # A replay of a longer step is not faster. Where it was measured faster, that is noise.
    padded = np.maximum.accumulate(np.asarray(replay, np.float64))
    n = len(count)
    if n == 0 or max_graphs < 1:
        return Chosen((), float(count @ alone), (False,) * n)
    weights, parts = np.zeros(n, np.int64), 0
    if memory is not None and limit is not None:
        share = np.asarray(memory, np.float64) / limit * PARTS
        weights, parts = np.ceil(share - 1e-9).astype(np.int64), PARTS
    # ends[j] - upto[i, j]: time of sizes i..j, each eager or padded to size j, whichever is faster.
    each = np.minimum(alone[:, None], padded[None, :]) * count[:, None]
    upto = np.vstack([np.zeros(n), np.cumsum(each, axis=0)])
    ends = upto[np.arange(1, n + 1), np.arange(n)]
    left_eager = np.concatenate([np.cumsum((count * alone)[::-1])[::-1], [0.0]])
    # state[j, m]: least time of the first j sizes with k buckets, the last at size j-1, and
    # m parts of the memory or less. origins[k-1] holds where the bucket before ended.
    state = np.full((n + 1, parts + 1), np.inf)
    state[0] = 0.0
    origins: list[Ints] = []
    total, graphs, end = float(left_eager[0]), 0, 0
    for k in range(1, min(max_graphs, n) + 1):
        after, origin = np.full_like(state, np.inf), np.zeros(state.shape, np.int64)
        for j in range(1, n + 1):
            weight = weights[j - 1]
            if weight > parts:
                continue
            before = state[:j, : parts + 1 - weight]
            through = before + (ends[j - 1] - upto[:j, j - 1])[:, None]
            origin[j, weight:] = through.argmin(axis=0)
            after[j, weight:] = through.min(axis=0)
        origins.append(origin)
        state = after
        totals = after[:, parts] + left_eager
        j = int(totals.argmin())
        if totals[j] < total * (1 - 1e-12):
            total, graphs, end = float(totals[j]), k, j
    edges: list[int] = []
    left = parts
    for origin in reversed(origins[:graphs]):
        edges.insert(0, end - 1)
        end, left = int(origin[end, left]), left - int(weights[end - 1])
    served = np.searchsorted(edges, np.arange(n))
    graphed = (at < len(edges) and padded[edges[at]] < alone[i] for i, at in enumerate(served))
    return Chosen(tuple(edges), total, tuple(map(bool, graphed)))


def fewest_buckets(
    counts: Sequence[float],
    eager: Sequence[float],
    replay: Sequence[float],
    max_graphs: int,
    memory: Sequence[float] | None = None,
    limit: float | None = None,
) -> Chosen:
    """The fewest buckets whose time is near the best, because each of them has to be captured."""
    most = range(1, max_graphs + 1)
    plans = [choose_buckets(counts, eager, replay, graphs, memory, limit) for graphs in most]
    enough = plans[-1].total * (1 + _NOT_WORTH_A_GRAPH)
    return next(chosen for chosen in plans if chosen.total <= enough)
