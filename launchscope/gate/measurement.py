"""The range of each count of a Profile."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from launchscope.gate import metrics
from launchscope.model import Profile, Shapes


class Range(Struct, frozen=True):
    """A metric over iterations; `exact` if all of them agree. A time has its median alone."""

    value: float
    low: float
    high: float
    exact: bool


def blocker_ranges(profile: Profile) -> dict[str, tuple[int, int]]:
    """For every blocker, by op, the fewest and the most of a step."""
    known = profile.facts.blocker_ranges or {}
    counts: Counter[str] = Counter()
    for blocker in profile.blockers:
        counts[blocker.op] += blocker.count
    return {op: known.get(op, (count, count)) for op, count in counts.items()}


def range_of(profile: Profile, metric: str) -> Range | None:
    """The metric's range; None if it was not measured, or is unknown to this version."""
    if metric == metrics.BLOCKERS:
        if profile.shapes.stable is None:  # the step was not inspected
            return None
        ranges = blocker_ranges(profile).values()
        least, most = float(sum(r[0] for r in ranges)), float(sum(r[1] for r in ranges))
        return Range(most, least, most, exact=least == most)
    value = profile.value(metric)
    if value is None or metric not in metrics.UNITS:
        return None
    own = profile.metrics[metric]
    low = high = value
    if metric in (profile.facts.ranges or {}):
        low, high = (profile.facts.ranges or {})[metric]
    elif metric == "shape_signatures":
        low = _least_shapes(profile.shapes, value)
    elif metrics.is_count(metric) and own.samples:
        low, high = min(own.samples), max(own.samples)
    return Range(value, low, high, own.exact and low == high)


def _least_shapes(shapes: Shapes, count: float) -> float:
    """How many of the shapes are no chance: a rare one may be met or not, and of shapes that always
    change a few steps see more or fewer."""
    steps = [signature.steps for signature in shapes.signatures]
    is_rare = max(steps, default=0) > sum(steps) / 2 or sum(steps) == 2
    return 1 if is_rare else min(count, 2)
