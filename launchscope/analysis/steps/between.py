"""The work between two steps: what every observed iteration does, and what only some of them do.

Work that occurs in some iterations has a period if it occurs in every p-th observed one, and was
observed often enough to be seen p iterations later twice, wherever the observation begins.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import reduce
from itertools import repeat
from operator import and_, or_

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from launchscope.analysis.timeline.intervals import median_by_group
from launchscope.analysis.timeline.work import Work
from launchscope.model import (
    BetweenRecord,
    BetweenSteps,
    Blocker,
    BlockerRecord,
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
_SEEN_AT_LEAST = 3
_WAITS = ("sync", "dynamic_shape")  # categories of blockers for which the host waits


class BetweenCounts(Struct, frozen=True):
    """`per_iteration` has what every iteration does, and an even share of what has a period;
    `ranges` the metrics of which some iterations have more."""

    per_iteration: dict[str, float]
    steps: BetweenSteps
    ranges: dict[str, tuple[float, float]]  # with the work of some iterations


def of_records(records: Sequence[BetweenRecord], *, on_gpu: bool) -> BetweenCounts | None:
    """From the inspected iterations; None without any. Where a trace of the GPU has the copies and
    synchronizations, only ops are counted."""
    # What comes after a long evaluation is missing in its iteration, and not in the others.
    records = [record for record in records if record.complete] or records
    if not records:
        return None
    counts: list[Counter[Kind]] = []
    for record in records:
        count = Counter({Kind(OPS, row.op, row.where): row.count for row in record.ops})
        if not on_gpu:
            for blocker in record.blockers:
                if blocker.category in _WAITS:
                    kind = Kind(SYNCS, blocker.op, blocker.where)
                    count[kind] += blocker.count
            count[Kind(COPIES, "")] += record.copies
        counts.append(count)
    found = occurrence(counts)
    steps = BetweenSteps(
        len(records),
        tuple(
            OpRow(kind.name, count, kind.where)
            for kind, count in found.always.items()
            if kind.metric == OPS
        ),
        _blockers(records),
        periodic=found.periodic,
    )
    return _counted((OPS,) if on_gpu else METRICS[1:], found, steps)


def _blockers(records: Sequence[BetweenRecord]) -> tuple[Blocker, ...]:
    """The blockers of every iteration."""
    rows = reduce(
        and_,
        (
            Counter({blocker_of(record): record.count for record in own})
            for own in (record.blockers for record in records)
        ),
    )
    return tuple(replace(blocker, count=count) for blocker, count in rows.items())


def blocker_of(record: BlockerRecord) -> Blocker:
    """What the record is of, without its count."""
    return Blocker(
        record.op, record.where, 0, record.category, record.code, record.inside, record.library
    )


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
    counts: dict[int, Counter[Kind]] = {int(row): Counter() for row in used}
    for (row, metric, name), count in sorted(found.items()):
        counts[row][Kind(metric, name)] = count
    seen = occurrence(list(counts.values()))
    chosen = where(names, {kind.name for kind in seen.always}.__contains__)
    lasted = median_by_group(duration[chosen], names.codes[chosen], len(names.texts))
    typical_us = dict(zip(names.texts, lasted / 1e3))
    kernels = tuple(
        KernelRow(kind.name, count, count * float(typical_us.get(kind.name, 0.0)))
        for kind, count in seen.always.items()
        if kind.metric != SYNCS
    )
    steps = BetweenSteps(len(used), kernels=kernels, periodic=seen.periodic)
    return _counted(METRICS[:3], seen, steps)


def _counted(measured: Sequence[str], found: Occurrence, steps: BetweenSteps) -> BetweenCounts:
    always = totals(found.always)
    per_iteration = {
        metric: always[metric]
        + sum(work.counts.get(metric, 0) / work.period for work in found.periodic if work.period)
        for metric in measured
    }
    ranges = {
        metric: (count, count + found.irregular[metric])
        for metric, count in per_iteration.items()
        if found.irregular[metric]
    }
    return BetweenCounts(per_iteration, steps, ranges)


class Kind(Struct, frozen=True):
    """Work that counts in one metric: an op or call, at one line."""

    metric: str
    name: str
    where: SourceLine | None = None


class Occurrence(Struct, frozen=True):
    """What all iterations do, the rest by the iterations in which it occurs, and, by metric, the
    most of the work without a period in one iteration."""

    always: Counter[Kind]
    periodic: tuple[PeriodicWork, ...]
    irregular: Counter[str]


def occurrence(counts: Sequence[Counter[Kind]]) -> Occurrence:
    """From the counts of each observed iteration; at least one iteration."""
    always = reduce(and_, counts)
    rests = [count - always for count in counts]
    seen: defaultdict[Kind, list[int]] = defaultdict(list)
    for index, rest in enumerate(rests):
        for kind in rest:
            seen[kind].append(index)
    together: defaultdict[tuple[int, ...], Counter[Kind]] = defaultdict(Counter)
    for kind, places in seen.items():
        together[tuple(places)][kind] = min(rests[place][kind] for place in places)
    periodic = tuple(
        PeriodicWork(
            len(places),
            len(counts),
            _period(places, len(counts)),
            dict(totals(kinds)),
            tuple(sorted({kind.where for kind in kinds if kind.where is not None})),
        )
        for places, kinds in sorted(together.items())
    )
    regular = {kind for kind, places in seen.items() if _period(places, len(counts))}
    irregular = (
        totals(Counter({kind: n for kind, n in rest.items() if kind not in regular}))
        for rest in rests
    )
    return Occurrence(always, periodic, reduce(or_, irregular))


def _period(places: Sequence[int], observed: int) -> int | None:
    """The period, in iterations, of work at these places among the observed iterations."""
    if len(places) < _SEEN_AT_LEAST:
        return None
    period = places[1] - places[0]
    regular = tuple(places) == tuple(range(places[0], observed, period))
    # Otherwise where the observation begins would decide whether the period is known.
    known = places[0] < period and _SEEN_AT_LEAST * period <= observed
    return period if regular and known else None


def totals(kinds: Counter[Kind]) -> Counter[str]:
    """The sum of the counts of each metric."""
    found: Counter[str] = Counter()
    for kind, count in kinds.items():
        found[kind.metric] += count
    return found
