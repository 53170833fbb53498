"""One Profile from several fresh processes, and the range of each of its figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median, mode

from launchscope.errors import InputError
from launchscope.gate import metrics
from launchscope.model import Blocker, Metric, Profile


@dataclass(frozen=True)
class Range:
    """A metric over fresh processes; `exact` if every sample of all of them agrees."""

    value: float
    low: float
    high: float
    exact: bool

    def best(self, metric: str) -> float:
        return self.high if metrics.higher_is_better(metric) else self.low

    def worst(self, metric: str) -> float:
        return self.low if metrics.higher_is_better(metric) else self.high


def merged(profiles: Sequence[Profile]) -> Profile:
    """The first Profile with the metrics of all: medians, and in `facts` their ranges."""
    first = profiles[0]
    joined: dict[str, Metric] = {}
    ranges: dict[str, tuple[float, float]] = {}
    for key, metric in first.metrics.items():
        found = [
            known for p in profiles if key in p.metrics and (known := range_of(p, key)) is not None
        ]
        if not found:
            joined[key] = metric
            continue
        low, high = min(r.low for r in found), max(r.high for r in found)
        values = [r.value for r in found]
        count = metrics.is_count(key)
        value: float = mode(values) if count else median(values)
        exact = all(r.exact for r in found) and low == high
        samples = tuple(s for p in profiles if key in p.metrics for s in p.metrics[key].samples)
        joined[key] = replace(
            metric,
            value=int(value) if value == int(value) and count else value,
            exact=exact,
            samples=samples,
        )
        if low != high:
            ranges[key] = low, high
    blockers, seen = _joined_blockers([p for p in profiles if p.shapes.stable is not None])
    facts = replace(
        first.facts,
        ranges=ranges,
        processes=sum(map(processes_of, profiles)),
        blocker_ranges=seen or None,
    )
    return replace(first, metrics=joined, blockers=blockers, facts=facts)


def _joined_blockers(
    profiles: Sequence[Profile],
) -> tuple[tuple[Blocker, ...], dict[str, tuple[int, int]]]:
    """Blockers of any process, and by op the fewest and the most in one process, where processes
    differ."""
    rows: dict[tuple[object, ...], Blocker] = {}
    for profile in profiles:
        alike: Counter[tuple[object, ...]] = Counter()
        for blocker in profile.blockers:
            kind = (blocker.op, blocker.category, blocker.where)
            key = (*kind, alike[kind])  # a line can have one in two parts of the step
            alike[kind] += 1
            if key not in rows or rows[key].count < blocker.count:
                rows[key] = blocker
    total: Counter[str] = Counter()
    for blocker in rows.values():
        total[blocker.op] += blocker.count
    counts = [blocker_ranges(profile) for profile in profiles]
    seen = {}
    for op in total:
        low = min(known.get(op, (0, 0))[0] for known in counts)
        high = max(known.get(op, (0, 0))[1] for known in counts)
        if (low, high) != (total[op], total[op]):
            seen[op] = low, high
    return tuple(rows.values()), seen


def sound(profile: Profile, place: str) -> Profile:
    """The Profile, which was read from `place`; InputError if a range of it has low above high."""
    facts = profile.facts
    for known, noun in ((facts.ranges, "metrics"), (facts.blocker_ranges, "blockers")):
        if any(low > high for low, high in (known or {}).values()):
            raise InputError(
                f"{place} is damaged: its {noun} have a range with low above high",
                hint="measure it again, or restore the file of an earlier commit",
            )
    return profile


def processes_of(profile: Profile) -> int:
    """How many fresh processes measured it."""
    return profile.facts.processes or 1


def blocker_ranges(profile: Profile) -> dict[str, tuple[int, int]]:
    """For every blocker, by op, the fewest and the most that a process saw in one step."""
    counts: Counter[str] = Counter()
    for blocker in profile.blockers:
        counts[blocker.op] += blocker.count
    known = profile.facts.blocker_ranges or {}
    return {op: known.get(op, (count, count)) for op, count in counts.items()}


def range_of(profile: Profile, metric: str) -> Range | None:
    """The metric's range over processes; None if it was not measured.

    In one process a timed metric is a single median, and a count ranges over its samples.
    """
    if metric == metrics.BLOCKERS:
        if profile.shapes.stable is None:  # the step was not inspected
            return None
        ranges = blocker_ranges(profile).values()
        least, most = float(sum(r[0] for r in ranges)), float(sum(r[1] for r in ranges))
        return Range(most, least, most, exact=least == most)
    value = profile.value(metric)
    if value is None:
        return None
    own = profile.metrics[metric]
    known = profile.facts.ranges or {}
    if metric in known:
        low, high = known[metric]
        return Range(value, low, high, own.exact)
    if metrics.is_count(metric) and own.samples:
        return Range(value, min(own.samples), max(own.samples), own.exact)
    return Range(value, value, value, own.exact)
