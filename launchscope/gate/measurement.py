"""One Profile of several fresh processes, and the range in which each of its metrics lay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median, mode

from launchscope.errors import InputError
from launchscope.gate import metrics
from launchscope.model import Metric, Profile

__all__ = ["PROCESSES", "RANGES", "Range", "merged", "processes_of", "range_of", "sound"]

# Facts of a Profile that was merged, or is a baseline.
RANGES = "ranges"
PROCESSES = "processes"


@dataclass(frozen=True)
class Range:
    """A metric over fresh processes; `exact` when every sample of all of them agreed."""

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
    ranges: dict[str, list[float]] = {}
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
        joined[key] = Metric(int(value) if value == int(value) and count else value, metric.unit,
                             exact, samples)  # fmt: skip
        if low != high:
            ranges[key] = [low, high]
    facts = {**first.facts, RANGES: ranges, PROCESSES: sum(map(processes_of, profiles))}
    return replace(first, metrics=joined, facts=facts)


def sound(profile: Profile, place: str) -> Profile:
    """The Profile, which came from `place`; InputError where its ranges cannot be ranges.

    They are among the facts, whose types nobody looks at when a Profile is read.
    """
    known = profile.facts.get(RANGES, {})
    if not isinstance(known, dict) or not all(map(_is_range, known.values())):
        raise InputError(
            f"{place} is damaged: the ranges of its metrics are not pairs of numbers",
            hint="measure it again, or take the file of an earlier commit",
        )
    return profile


def _is_range(pair: object) -> bool:
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and all(isinstance(end, int | float) for end in pair)
        and pair[0] <= pair[1]
    )


def processes_of(profile: Profile) -> int:
    """In how many fresh processes it was measured."""
    count = profile.facts.get(PROCESSES)
    return count if isinstance(count, int) else 1


def range_of(profile: Profile, metric: str) -> Range | None:
    """The metric's range; None if it was not measured.

    A timed metric of one process is a single median. A count that its samples do not agree
    on ranges over the samples.
    """
    if metric == metrics.BLOCKERS:
        if profile.shapes.stable is None:  # the step was not inspected
            return None
        total = float(sum(blocker.count for blocker in profile.blockers))
        return Range(total, total, total, exact=True)
    value = profile.value(metric)
    if value is None:
        return None
    own = profile.metrics[metric]
    known = profile.facts.get(RANGES)
    if isinstance(known, dict) and metric in known:
        low, high = map(float, known[metric])
        return Range(value, low, high, own.exact)
    if metrics.is_count(metric) and own.samples:
        return Range(value, min(own.samples), max(own.samples), own.exact)
    return Range(value, value, value, own.exact)
