"""The work between two steps: what every observed iteration does, and what only some of them do.

Work that occurs in some iterations has a period if it occurs in every p-th observed one, and was
observed often enough to be seen p iterations later twice, wherever the observation begins.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_

import numpy as np
import pandas as pd

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
from launchscope.parser.trace import ints

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
    # A launch is known by the first thing that it runs.
    first = work.activities.drop_duplicates(c.LAUNCH).set_index(c.LAUNCH)[c.NAME].astype(str)
    kind = work.launches[c.KIND].to_numpy(object)
    launches = {
        "iteration": work.iteration,
        "step": work.step,
        "metric": np.where(kind == c.MEMCPY, COPIES, LAUNCHES),
        "name": first.reindex(range(len(kind))).where(kind != c.GRAPH, c.GRAPH).to_numpy(object),
    }
    waits = work.syncs[work.syncs[c.COUNTED]]
    start = ints(waits, c.START)
    syncs = {
        "iteration": windows.of(start),
        "step": windows.step_of(start),
        "metric": SYNCS,
        "name": waits[c.NAME].astype(str).to_numpy(object),
    }
    rows = pd.concat([pd.DataFrame(launches), pd.DataFrame(syncs)], ignore_index=True)
    rows = rows[(rows["step"] < 0) & rows["iteration"].isin(used)]
    sizes = rows.groupby(["iteration", "metric", "name"], observed=True).size().reset_index()
    counts: dict[int, Counter[_Kind]] = {int(row): Counter() for row in used}
    for iteration, metric, name, size in sizes.itertuples(index=False, name=None):
        counts[iteration][_Kind(metric, name)] = int(size)
    always, periodic = _split(list(counts.values()))
    lasted = work.activities.assign(name=work.activities[c.NAME].astype(str))
    typical_us = lasted.groupby("name", observed=True)[c.DUR].median() / 1e3
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
