"""The padded sizes that minimise the expected time of a step, with a graph for each.

Exact, by dynamic programming over the sizes that were seen: some best set of buckets has only
such sizes, because lowering a bucket to the largest size it serves makes no step slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from launchscope.parser.trace import Floats, Ints

# The memory limit is divided into so many parts, and what a graph needs is rounded up to one.
PARTS = 256


@dataclass(frozen=True)
class Chosen:
    """`edges` index the sizes that are padded to, ascending; `total` is the time of all steps.

    `graphed[i]` tells whether size i runs a graph: one that is slower padded stays eager.
    """

    edges: tuple[int, ...]
    total: float
    graphed: tuple[bool, ...]


def choose_buckets(
    counts: Sequence[float],
    eager: Sequence[float],
    replay: Sequence[float],
    max_graphs: int,
    memory: Sequence[float] | None = None,
    limit: float | None = None,
) -> Chosen:
    """The best buckets for distinct sizes in ascending order.

    `counts[i]` steps of size i take `eager[i]` each without a graph, and `replay[j]` padded to
    size j >= i. A step above every bucket, or faster eagerly, stays eager. The graphs together
    hold at most `limit` of `memory`, to one part in 256 of it, rounded up. Of plans of equal
    time the one with the fewest graphs is taken.
    """
    count = np.asarray(counts, np.float64)
    alone = np.asarray(eager, np.float64)
    # A replay of a longer step is no faster: what says so is the noise of its measurement.
    padded = np.maximum.accumulate(np.asarray(replay, np.float64))
    n = len(count)
    if n == 0 or max_graphs < 1:
        return Chosen((), float(count @ alone), (False,) * n)
    weights, parts = _weights(memory, limit, n)
    # cost[i, j]: sizes i..j-1 in the bucket of size j-1, each the faster of the two ways.
    each = np.minimum(alone[:, None], padded[None, :]) * count[:, None]
    upto = np.vstack([np.zeros(n), np.cumsum(each, axis=0)])
    ends = upto[np.arange(1, n + 1), np.arange(n)]
    left_eager = np.concatenate([np.cumsum((count * alone)[::-1])[::-1], [0.0]])
    # best[k][j, m]: least time of the first j sizes with k buckets, the last at size j-1, and
    # m parts of the memory or less.
    state = np.full((n + 1, parts + 1), np.inf)
    state[0] = 0.0
    steps: list[Ints] = []
    found = (float(left_eager[0]), 0, 0)
    states = [state]
    for k in range(1, min(max_graphs, n) + 1):
        after = np.full((n + 1, parts + 1), np.inf)
        origin = np.zeros((n + 1, parts + 1), np.int64)
        for j in range(1, n + 1):
            weight = weights[j - 1]
            if weight > parts:
                continue
            before = states[-1][:j, : parts + 1 - weight]
            through = before + (ends[j - 1] - upto[:j, j - 1])[:, None]
            origin[j, weight:] = through.argmin(axis=0)
            after[j, weight:] = through.min(axis=0)
        steps.append(origin)
        states.append(after)
        totals = after[:, parts] + left_eager
        j = int(totals.argmin())
        if totals[j] < found[0] * (1 - 1e-12):
            found = (float(totals[j]), k, j)
    edges = _walk(found[1], found[2], steps, weights, parts)
    return Chosen(edges, found[0], _graphed(edges, alone, padded))


def _weights(memory: Sequence[float] | None, limit: float | None, n: int) -> tuple[Ints, int]:
    """Parts of the limit that each graph takes, and how many parts there are."""
    if memory is None or limit is None:
        return np.zeros(n, np.int64), 0
    share = np.asarray(memory, np.float64) / limit * PARTS
    return np.ceil(share - 1e-9).astype(np.int64), PARTS


def _walk(
    k: int,
    j: int,
    steps: list[Ints],
    weights: Ints,
    parts: int,
) -> tuple[int, ...]:
    edges: list[int] = []
    left = parts
    while k > 0:
        edges.append(j - 1)
        before = int(steps[k - 1][j, left])
        left -= int(weights[j - 1])
        k, j = k - 1, before
    return tuple(reversed(edges))


def _graphed(edges: tuple[int, ...], alone: Floats, padded: Floats) -> tuple[bool, ...]:
    served = np.searchsorted(edges, np.arange(len(alone)))
    return tuple(
        bool(at < len(edges) and padded[edges[at]] < alone[i]) for i, at in enumerate(served)
    )
