"""What a comparison says of each point beyond its Profile, and of all batch sizes together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from msgspec.structs import replace

from launchscope.model import Crossover, Point

# The reports of a comparison show no kernels, and its file keeps the longest.
KERNELS_KEPT = 20


def with_rates(point: Point) -> Point:
    """The point with its samples per second, and only the kernels that take the most time."""
    if point.profile is None:
        return point
    longest = sorted(point.profile.kernels, key=lambda kernel: -kernel.total_us)[:KERNELS_KEPT]
    return replace(
        point,
        profile=replace(point.profile, kernels=tuple(longest)),
        samples_per_s=_rate(point, "iteration_ms"),
        replay_samples_per_s=_rate(point, "replayed_iteration_ms"),
    )


def _rate(point: Point, key: str) -> float | None:
    ms = point.value(key)
    if point.batch_size is None or ms is None or ms <= 0:
        return None
    return 1e3 * point.batch_size / ms


def same_work(points: Sequence[Point]) -> bool | None:
    """Whether steps of all batch sizes read inputs of the same shapes, so that the script ignores
    the batch size. None where the shapes of fewer than two sizes are known."""
    seen = {
        point.batch_size: shapes
        for point in points
        if point.batch_size is not None
        and point.profile is not None
        and (shapes := frozenset(known.inputs for known in point.profile.shapes.signatures))
    }
    return len(set(seen.values())) == 1 if len(seen) > 1 else None


def crossover(points: Sequence[Point], threshold_pct: float) -> Crossover:
    """Where the share of the iteration that a replay removes falls below `threshold_pct`.

    It is interpolated from the time in which the GPU waits for launches, which is measured eagerly
    at every size, if that crosses the threshold there too, else from the share removed.
    """
    known = sorted(
        (p.batch_size, removable, p.value("launch_overhead_pct"))
        for p in points
        if p.batch_size is not None and (removable := p.value("removable_pct")) is not None
    )
    gains = tuple((size, removable) for size, removable, _ in known)
    found = Crossover(threshold_pct, gains=gains)
    pays = [removable >= threshold_pct for _, removable in gains]
    changes = [index for index, (a, b) in enumerate(pairwise(pays)) if a != b]
    if len(changes) != 1 or not pays[0]:
        return found
    (before, high, above), (after, low, below) = known[changes[0] : changes[0] + 2]
    if above is not None and below is not None and above >= threshold_pct > below:
        high, low = above, below
    logs = np.log2([before, after])
    share = (high - threshold_pct) / (high - low)
    return replace(found, batch_size=float(2 ** (logs[0] + share * (logs[1] - logs[0]))))
