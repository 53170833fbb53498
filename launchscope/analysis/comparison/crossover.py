"""The batch size at which the gain of a graph falls under the threshold."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from launchscope.model import Crossover, NearestPoint, Point

BATCH_SIZE = "batch_size"


def crossovers(points: Iterable[Point], threshold_pct: float) -> tuple[Crossover, ...]:
    """One for each combination of the other parameters, in the order in which they were run."""
    groups: dict[tuple[tuple[str, str], ...], list[Point]] = {}
    for point in points:
        if point.batch_size is not None:
            others = {k: v for k, v in point.parameters.items() if k != BATCH_SIZE}
            groups.setdefault(tuple(others.items()), []).append(point)
    return tuple(crossover(group, threshold_pct, dict(others)) for others, group in groups.items())


def crossover(
    points: Iterable[Point], threshold_pct: float, parameters: dict[str, str] | None = None
) -> Crossover:
    """Where the share of the iteration that a replay removes falls under `threshold_pct`.

    Between the two measured sizes on either side of it, on the line over the logarithm of the
    batch size: of the exposed launch overhead where that too is on either side of the threshold,
    because it is measured eagerly at every size, else of the share removed.
    """
    named = parameters or {}
    known = sorted(
        (
            NearestPoint(p.batch_size, removable, p.value("launch_overhead_pct"))
            for p in points
            if p.batch_size is not None and (removable := p.value("removable_pct")) is not None
        ),
        key=lambda neighbour: neighbour.batch_size,
    )
    measured = {
        p.batch_size for p in points if p.profile is not None and p.value("replay_ms") is not None
    }
    if len(known) < 2:
        return Crossover("unknown", threshold_pct, named)
    pays = [neighbour.removable_pct >= threshold_pct for neighbour in known]
    changes = [index for index, (a, b) in enumerate(pairwise(pays)) if a != b]
    if not changes:
        end = known[-1] if pays[0] else known[0]
        if pays[0]:
            return Crossover("above", threshold_pct, named, pays=end)
        return Crossover("below", threshold_pct, named, pays_not=end)
    if len(changes) > 1:
        return Crossover("several", threshold_pct, named)
    before, after = known[changes[0]], known[changes[0] + 1]
    confirmed = {before.batch_size, after.batch_size} <= measured
    if not pays[changes[0]]:
        return Crossover(
            "rising", threshold_pct, named, pays=after, pays_not=before, confirmed=confirmed
        )
    exposed = (before.exposed_pct, after.exposed_pct)
    if exposed[0] is not None and exposed[1] is not None:
        high, low = exposed[0], exposed[1]
        if high >= threshold_pct > low:
            size = _at(before, after, high, low, threshold_pct)
            return Crossover(
                "between", threshold_pct, named, size, "exposed", before, after, confirmed
            )
    size = _at(before, after, before.removable_pct, after.removable_pct, threshold_pct)
    return Crossover("between", threshold_pct, named, size, "removable", before, after, confirmed)


def _at(
    before: NearestPoint, after: NearestPoint, high: float, low: float, threshold: float
) -> float:
    """Batch size at which the line from `high` at one to `low` at the other has the threshold."""
    share = (high - threshold) / (high - low)
    logs = np.log2([before.batch_size, after.batch_size])
    return float(2 ** (logs[0] + share * (logs[1] - logs[0])))
