"""The work between two steps: what every observed iteration does, and what only some of them do.

Work that occurs in some iterations has a period if it occurs in every p-th observed one, and was
observed often enough to be seen p iterations later twice, wherever the observation begins.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import repeat
from operator import and_

import numpy as np

from launchscope.analysis.timeline.intervals import median_by_group
from launchscope.analysis.timeline.work import Work
from launchscope.model import (
    BetweenRecord,
    BetweenSteps,
    Blocker,
    KernelRow,
    OpRow,
    PeriodicWork,
    SourceLine,
)
from launchscope.parser import columns as c
from launchscope.parser.trace import Texts, ints, where

LAUNCHES, SYNCS, COPIES, OPS = METRICS = (
    "between_launches",
    "between_syncs",
    "between_copies",
    "between_ops",
)
_WAITS = ("sync", "dynamic_shape")  # categories of blockers for which the host waits
_SEEN_AT_LEAST = 3


@dataclass(frozen=True)
class _Kind:
    """Work that counts in one metric: an op or call, at one line if that is known."""

    metric: str
    what: Hashable
    where: SourceLine | None = None


@dataclass(frozen=True)
class BetweenCounts:
    """`per_iteration` has what every iteration does, and an even share of what has a period."""

    per_iteration: dict[str, float]
    steps: BetweenSteps


def of_records(records: Sequence[BetweenRecord], *, on_gpu: bool) -> BetweenCounts | None:
    """From the inspected iterations; None without any. Where a trace of the GPU has the copies and
    synchronizations, only ops are counted."""
    # What comes after a long evaluation is missing in its iteration, and not in the others.
    records = [record for record in records if record.complete] or records
    if not records:
        return None
    counts = []
    for record in records:
        found = Counter({_Kind(OPS, row.op, row.where): row.count for row in record.ops})
        if not on_gpu:
            for blocker in record.blockers:
                if blocker.category in _WAITS:
                    found[_Kind(SYNCS, blocker.op, blocker.where)] += blocker.count
            found[_Kind(COPIES, None)] += record.copies
        counts.append(found)
    always, periodic = _split(counts)
    steps = BetweenSteps(
        len(records),
        tuple(
            OpRow(str(kind.what), count, kind.where)
            for kind, count in always.items()
            if kind.metric == OPS
        ),
        _blockers(records),
        periodic=periodic,
    )
    return BetweenCounts(_per_iteration((OPS,) if on_gpu else METRICS[1:], always, periodic), steps)


def _blockers(records: Sequence[BetweenRecord]) -> tuple[Blocker, ...]:
    """Those of every iteration."""
    rows = reduce(
        and_,
        (
            Counter({Blocker(b.op, b.where, 0, b.category, b.code, b.inside): b.count for b in own})
            for own in (record.blockers for record in records)
        ),
    )
    return tuple(replace(blocker, count=count) for blocker, count in rows.items())


def of_trace(work: Work) -> BetweenCounts | None:
    """From the traced iterations: launches (of kernels, sets and graphs), synchronizations and
    copies. None if no steps were traced."""
    used, windows = work.iterations.used, work.iterations
    if not len(used) or (len(windows) == 1 and not windows.whole):
        return None  # what ran before the only step was not traced
    names, duration = work.activities[c.NAME], ints(work.activities, c.DUR)
    copy, graph = (work.launches[c.KIND] == kind for kind in (c.MEMCPY, c.GRAPH))
    # A launch is known by the first thing that it runs: written backwards, that stays.
    first = np.zeros(len(graph) + 1, np.int64)
    first[ints(work.activities, c.LAUNCH)[::-1]] = names.codes[::-1]
    launched = Texts(np.where(graph, len(names.texts), first[:-1]), [*names.texts, c.GRAPH])
    waits = work.syncs[work.syncs[c.COUNTED]]
    start = ints(waits, c.START)
    found: Counter[tuple[int, str, str]] = Counter()
    for metric, texts, iteration, step in (
        (COPIES, launched[copy], work.iteration[copy], work.step[copy]),
        (LAUNCHES, launched[~copy], work.iteration[~copy], work.step[~copy]),
        (SYNCS, waits[c.NAME], windows.of(start), windows.step_of(start)),
    ):
        mine = (step < 0) & np.isin(iteration, used)
        found.update(zip(iteration[mine].tolist(), repeat(metric), texts[mine]))
    counts: dict[int, Counter[_Kind]] = {int(row): Counter() for row in used}
    for (row, metric, name), count in sorted(found.items()):
        counts[row][_Kind(metric, name)] = count
    always, periodic = _split(list(counts.values()))
    chosen = where(names, {kind.what for kind in always}.__contains__)
    lasted = median_by_group(duration[chosen], names.codes[chosen], len(names.texts))
    typical_us = dict(zip(names.texts, lasted / 1e3))
    kernels = tuple(
        KernelRow(str(kind.what), count, count * float(typical_us.get(kind.what, 0.0)))
        for kind, count in always.items()
        if kind.metric != SYNCS
    )
    steps = BetweenSteps(len(used), kernels=kernels, periodic=periodic)
    return BetweenCounts(_per_iteration(METRICS[:3], always, periodic), steps)


def _split(
    counts: Sequence[Counter[_Kind]],
) -> tuple[Counter[_Kind], tuple[PeriodicWork, ...]]:
    """What occurs in all iterations, and the rest by the iterations in which it occurs."""
    always = reduce(and_, counts)
    rests = [count - always for count in counts]
    seen: defaultdict[_Kind, list[int]] = defaultdict(list)
    for index, rest in enumerate(rests):
        for kind in rest:
            seen[kind].append(index)
    together: defaultdict[tuple[int, ...], Counter[_Kind]] = defaultdict(Counter)
    for kind, places in seen.items():
        together[tuple(places)][kind] = min(rests[place][kind] for place in places)
    return always, tuple(
        PeriodicWork(
            len(places),
            len(counts),
            _period(places, len(counts)),
            dict(_totals(kinds)),
            tuple(sorted({kind.where for kind in kinds if kind.where is not None})),
        )
        for places, kinds in sorted(together.items())
    )


def _period(places: Sequence[int], observed: int) -> int | None:
    """In iterations, of what occurs at these places of the observed ones."""
    if len(places) < _SEEN_AT_LEAST:
        return None
    period = places[1] - places[0]
    regular = tuple(places) == tuple(range(places[0], observed, period))
    # Otherwise where the observation begins would decide whether the period is known.
    known = places[0] < period and _SEEN_AT_LEAST * period <= observed
    return period if regular and known else None


def _totals(kinds: Counter[_Kind]) -> Counter[str]:
    totals: Counter[str] = Counter()
    for kind, count in kinds.items():
        totals[kind.metric] += count
    return totals


def _per_iteration(
    measured: Sequence[str], always: Counter[_Kind], periodic: Sequence[PeriodicWork]
) -> dict[str, float]:
    totals = _totals(always)
    return {
        metric: totals[metric]
        + sum(work.counts.get(metric, 0) / work.period for work in periodic if work.period)
        for metric in measured
    }
