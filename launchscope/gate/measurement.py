"""One Profile from several fresh processes, and the range of each of its counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import reduce
from operator import and_, or_
from statistics import median, mode
from typing import TypeVar

from launchscope.frozen import dataclass
from launchscope.gate import metrics
from launchscope.model import BetweenSteps, Blocker, OpRow, Profile, Shapes

_Row = TypeVar("_Row", OpRow, Blocker)
_Counts = Counter[_Row]


@dataclass(frozen=True)
class Range:
    """A metric over iterations and fresh processes; `exact` if all of them agree. A time has its
    median alone."""

    value: float
    low: float
    high: float
    exact: bool


def merged(profiles: Sequence[Profile]) -> Profile:
    """The first Profile with the metrics of all: medians, or the most frequent count, and in
    `facts` the ranges of counts."""
    first, *others = profiles
    if not others:
        return first
    joined = dict(first.metrics)
    ranges: dict[str, tuple[float, float]] = {}
    for key, metric in first.metrics.items():
        found = [known for p in profiles if (known := range_of(p, key)) is not None]
        if not found:
            continue
        low, high = min(r.low for r in found), max(r.high for r in found)
        if low != high:
            ranges[key] = low, high
        own = [p.metrics[key] for p in profiles if p.value(key) is not None]
        middle = mode if metrics.is_count(key) else median
        joined[key] = replace(
            metric,
            value=middle([m.value for m in own if m.value is not None]),
            exact=low == high and all(r.exact for r in found),
            samples=tuple(sample for m in own for sample in m.samples),
        )
    inspected = [p for p in profiles if p.shapes.stable is not None]
    facts = replace(
        first.facts,
        ranges=ranges or None,
        processes=sum(p.facts.processes or 1 for p in profiles),
        blocker_ranges=_joined_blocker_ranges(inspected) or None,
    )
    return replace(
        first,
        metrics=joined,
        blockers=_combined([p.blockers for p in inspected], or_),
        ops=_combined([p.ops for p in profiles], and_),
        between=_joined_between([p.between for p in profiles if p.between is not None]),
        facts=facts,
    )


def _joined_between(found: Sequence[BetweenSteps]) -> BetweenSteps | None:
    """The first, with the ops and blockers of every iteration of every process."""
    if not found:
        return None
    ops, blockers = [between.ops for between in found], [between.blockers for between in found]
    return replace(found[0], ops=_combined(ops, and_), blockers=_combined(blockers, and_))


def _combined(
    found: Sequence[tuple[_Row, ...]],
    combine: Callable[[Counter[_Row], Counter[_Row]], Counter[_Row]],
) -> tuple[_Row, ...]:
    """Rows with the fewest counts of all processes (`and_`), or the most (`or_`)."""
    counts = [Counter[_Row]() for _ in found]
    for count, rows in zip(counts, found):
        for row in rows:
            count[replace(row, count=0)] += row.count
    rows_of_all = reduce(combine, counts, counts[0] if counts else Counter[_Row]())
    return tuple(replace(row, count=number) for row, number in rows_of_all.items())


def _joined_blocker_ranges(profiles: Sequence[Profile]) -> dict[str, tuple[int, int]]:
    counts = [blocker_ranges(profile) for profile in profiles]
    joined = {}
    for op in dict.fromkeys(op for known in counts for op in known):
        lows, highs = zip(*(known.get(op, (0, 0)) for known in counts))
        joined[op] = min(lows), max(highs)
    return joined


def blocker_ranges(profile: Profile) -> dict[str, tuple[int, int]]:
    """For every blocker, by op, the fewest and the most of a step."""
    known = profile.facts.blocker_ranges or {}
    counts = totals((blocker.op, blocker.count) for blocker in profile.blockers)
    return {op: known.get(op, (count, count)) for op, count in counts.items()}


def totals(rows: Iterable[tuple[str, int]]) -> Counter[str]:
    """The sum of the counts of each name."""
    counts: Counter[str] = Counter()
    for name, count in rows:
        counts[name] += count
    return counts


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
