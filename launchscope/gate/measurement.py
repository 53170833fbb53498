"""One Profile from several fresh processes, and the range of each of its figures."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from operator import and_
from statistics import median, mode
from typing import TypeVar

from launchscope.errors import InputError
from launchscope.frozen import dataclass
from launchscope.gate import metrics
from launchscope.model import BetweenSteps, Blocker, OpRow, Profile, Shapes, WorkCount

_Row = TypeVar("_Row", OpRow, Blocker)
_FEWEST_SAMPLES = 8  # so that each half has a median


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
    joined = dict(first.metrics)
    ranges: dict[str, tuple[float, float]] = {}
    for key, metric in first.metrics.items():
        of_all = [p for p in profiles if key in p.metrics]
        found = [known for p in of_all if (known := range_of(p, key)) is not None]
        if not found:
            continue
        low, high = min(r.low for r in found), max(r.high for r in found)
        if low != high:
            ranges[key] = low, high
        count = metrics.is_count(key)
        value: float = (mode if count else median)([r.value for r in found])
        joined[key] = replace(
            metric,
            value=int(value) if count and value == int(value) else value,
            exact=low == high and all(r.exact for r in found),
            samples=tuple(sample for p in of_all for sample in p.metrics[key].samples),
        )
    blockers, seen = _joined_blockers([p for p in profiles if p.shapes.stable is not None])
    facts = replace(
        first.facts,
        ranges=ranges,
        processes=sum(p.facts.processes or 1 for p in profiles),
        blocker_ranges=seen or None,
    )
    shapes = max((p.shapes for p in profiles), key=usual_share)
    work = _joined_work(profiles)
    return replace(
        first,
        metrics=joined,
        blockers=blockers,
        ops=_in_all([p.ops for p in profiles]) if len(profiles) > 1 else first.ops,
        between=_joined_between([p.between for p in profiles if p.between is not None]),
        facts=facts,
        shapes=shapes,
        work=work,
    )


def _joined_between(found: Sequence[BetweenSteps]) -> BetweenSteps | None:
    """The first, with the ops and blockers of every iteration of every process."""
    if len(found) < 2:
        return found[0] if found else None
    return replace(
        found[0],
        ops=_in_all([between.ops for between in found]),
        blockers=_in_all([between.blockers for between in found]),
    )


def _in_all(found: Sequence[tuple[_Row, ...]]) -> tuple[_Row, ...]:
    """Rows with the fewest counts of all processes."""
    counts = [Counter[_Row]() for _ in found]
    for count, rows in zip(counts, found):
        for row in rows:
            count[replace(row, count=0)] += row.count
    return tuple(replace(row, count=least) for row, least in reduce(and_, counts).items())


def _joined_work(profiles: Sequence[Profile]) -> tuple[WorkCount, ...]:
    """The work of all processes; what one of them never did counts as 0 there."""
    rows: defaultdict[tuple[str, str, str | None], list[WorkCount]] = defaultdict(list)
    for profile in profiles:
        for work in profile.work:
            rows[work.metric, work.name, work.code].append(work)
    return tuple(
        WorkCount(
            *key,
            min(work.low for work in found) if len(found) == len(profiles) else 0,
            max(work.high for work in found),
            max(work.most for work in found),
        )
        for key, found in rows.items()
    )


def explained(metric: str, more: Profile, less: Profile, name: str | None = None) -> float:
    """How much more of a metric one Profile counts than the `low` of the other because all its
    iterations did what some of the other's did. With a name, only work of that name."""
    known = {(w.name, w.code): w.high for w in more.work if w.metric == metric}
    return sum(
        max(0.0, min(work.most, known.get((work.name, work.code), 0.0)) - work.low)
        for work in less.work
        if work.metric == metric and name in (None, work.name)
    )


def added(
    metric: str, profile: Profile, baseline: Profile, fewest: float, name: str | None = None
) -> float:
    """How much of a metric every iteration of every process does and none of the baseline did. Each
    line counts by itself, so that what came or went by chance hides nothing; those that only one
    has are taken together, as an edited line is in both. `fewest` is what a process of the baseline
    counts at least. With a name, only work of that name."""
    now, before = (
        {(w.name, w.code): w for w in p.work if w.metric == metric and name in (None, w.name)}
        for p in (profile, baseline)
    )
    if not before:  # none, which no chance can hide, or of an older version
        return 0.0
    always, seen, least, most = (defaultdict[tuple[str, str | None], float](float) for _ in "1234")
    for key, work in now.items():
        own = key if key in before else (key[0], None)
        always[own] += work.low
        seen[own] += work.most
    for key, work in before.items():
        own = key if key in now else (key[0], None)
        least[own] += work.low
        most[own] += work.most
    came = sum(max(0.0, min(most[key], always[key]) - least[key]) for key in [*always])
    went = sum(max(0.0, min(seen[key], least[key]) - always[key]) for key in [*least])
    return sum(always.values()) - came - max(fewest, sum(least.values())) + went


def usual_share(shapes: Shapes) -> float:
    """The share of the inspected steps that have the most frequent shapes; 0 if none is known."""
    counts = [signature.steps for signature in shapes.signatures]
    return max(counts, default=0) / max(sum(counts), 1)


def _joined_blockers(
    profiles: Sequence[Profile],
) -> tuple[tuple[Blocker, ...], dict[str, tuple[int, int]]]:
    """Blockers of any process, and by op the fewest and the most in one process, where processes
    differ."""
    rows: dict[tuple[object, ...], Blocker] = {}
    for profile in profiles:
        alike: Counter[tuple[object, ...]] = Counter()
        for blocker in profile.blockers:
            line = blocker.library and blocker.library.where
            kind = (blocker.op, blocker.category, blocker.where, line)
            key = (*kind, alike[kind])  # a line can have one in two parts of the step
            alike[kind] += 1
            if key not in rows or rows[key].count < blocker.count:
                rows[key] = blocker
    total = totals((row.op, row.count) for row in rows.values())
    counts = [blocker_ranges(profile) for profile in profiles]
    seen = {}
    for op in total:
        lows, highs = zip(*(known.get(op, (0, 0)) for known in counts))
        if (min(lows), max(highs)) != (total[op], total[op]):
            seen[op] = min(lows), max(highs)
    return tuple(rows.values()), seen


def sound(profile: Profile, place: str) -> Profile:
    """The Profile, which was read from `place`, without metrics that only another version knows;
    InputError if a range of it has low above high."""
    facts = profile.facts
    for known, noun in ((facts.ranges, "metrics"), (facts.blocker_ranges, "blockers")):
        if any(low > high for low, high in (known or {}).values()):
            raise InputError(
                f"{place} is damaged: its {noun} have a range with low above high",
                hint="measure it again, or restore the file of an earlier commit",
            )
    known_here = {key: m for key, m in profile.metrics.items() if key in metrics.UNITS}
    return replace(profile, metrics=known_here)


def noise_of(profile: Profile, metric: str) -> float | None:
    """By how much a timed metric differs in unchanged code, in its unit: between the first and the
    second half of this run, or between its processes if that is more. None: not known. A metric
    without samples is taken to differ as the iteration does."""
    value = profile.value(metric)
    if value is None:
        return None
    known = []
    for clock in (profile.metrics[metric], profile.metrics.get("iteration_ms")):
        if clock is not None and clock.value and len(clock.samples) >= _FEWEST_SAMPLES:
            middle = len(clock.samples) // 2
            early, late = median(clock.samples[:middle]), median(clock.samples[middle:])
            known.append(abs(late - early) / abs(clock.value) * abs(value))
            break
    if metric in (profile.facts.ranges or {}):
        low, high = (profile.facts.ranges or {})[metric]
        known.append(high - low)
    return max(known, default=None)


def blocker_ranges(profile: Profile) -> dict[str, tuple[int, int]]:
    """For every blocker, by op, the fewest that a step of any process had, and the most that a
    process saw in one step."""
    known = profile.facts.blocker_ranges or {}
    counts = totals((blocker.op, blocker.count) for blocker in profile.blockers)
    rows = [work for work in profile.work if work.metric == metrics.BLOCKERS]
    ranges = {op: known.get(op, (count, count)) for op, count in counts.items()}
    if not rows:  # of an older version
        return ranges
    fewest = {op: int(sum(row.low for row in rows if row.name == op)) for op in counts}
    return {op: (min(fewest[op], low), high) for op, (low, high) in ranges.items()}


def totals(rows: Iterable[tuple[str, int]]) -> Counter[str]:
    """The sum of the counts of each name."""
    counts: Counter[str] = Counter()
    for name, count in rows:
        counts[name] += count
    return counts


def observed_alike(metric: str, profile: Profile, baseline: Profile) -> bool:
    """Whether a figure of both is about the same work. Over how many iterations the work between
    steps was observed decides whether what is periodic has a known period, and counts."""
    both = [p.between for p in (profile, baseline) if p.between is not None]
    if not metric.startswith("between_") or len({between.observed for between in both}) < 2:
        return True
    return not any(
        work.period and metric in work.counts for between in both for work in between.periodic
    )


def range_of(profile: Profile, metric: str) -> Range | None:
    """The metric's range over processes; None if it was not measured. In one process a timed metric
    is a single median, and a count ranges over its samples."""
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
    spread = own.samples if metrics.is_count(metric) and own.samples else (value,)
    low, high = (profile.facts.ranges or {}).get(metric, (min(spread), max(spread)))
    return Range(value, low, high, own.exact)
