"""GPU busy and idle time of the traced iterations, and whose fault each idle gap is.

A gap ends when a device activity starts, and belongs to the thread and the iteration whose
launch started that activity. Parts of a gap, in the order in which they are taken:

- dispatch: all of it, when the launch call had returned before the GPU went idle;
- data: while that thread was in the data loader;
- sync: while that thread was in a synchronisation, and the refilling after one: up to as much
  idle time as the host had spent waiting, because without the wait it would have been that
  much further ahead;
- launch call and framework: the rest, by whether the thread was in a launch call;
- unattributed: gaps that an activity without a known launch ended.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from launchscope.analysis.timeline.intervals import Cover, union_ns_by_group
from launchscope.analysis.timeline.work import Work
from launchscope.parser import columns as c
from launchscope.parser.trace import Bools, Floats, Ints, ints

DATA_RANGE = "enumerate(DataLoader)"


@dataclass(frozen=True)
class IdleParts:
    """Idle milliseconds per used iteration, by cause; they sum to `idle`."""

    idle: Floats
    dispatch: Floats
    data: Floats
    sync: Floats
    launch_call: Floats
    framework: Floats
    unattributed: Floats


@dataclass(frozen=True)
class Timeline:
    """Milliseconds per used iteration of the trace (traced time, not to be compared with
    untraced time except for `step_busy` and `iteration_busy`, which tracing leaves alone)."""

    step_busy: Floats
    iteration_busy: Floats
    traced_iteration: Floats  # from the GPU's end of the iteration before to its own
    iteration_idle: IdleParts
    step_idle: IdleParts


@dataclass(frozen=True)
class _Gaps:
    """Idle gaps of the device by time. `thread` is that of the ending launch; -1 none."""

    start: Ints
    end: Ints
    launch: Ints


def build_timeline(work: Work) -> Timeline:
    """Busy union and idle attribution of every used iteration."""
    start, end = ints(work.activities, c.START), ints(work.activities, c.END)
    count = len(work.iterations)
    used = work.iterations.used
    gaps = _gaps(start, end, ints(work.activities, c.LAUNCH))
    launched = gaps.launch >= 0
    # Over the whole trace an orphan's gap is idle time too, if nobody's.
    orphan = 0 if work.iterations.whole else -1
    iteration = np.where(launched, np.append(work.iteration, -1)[gaps.launch], orphan)
    step = np.where(launched, np.append(work.step, -1)[gaps.launch], orphan)
    # An orphan's gap goes to the iteration of the next launched activity's gap.
    orphan_home = _next_known(iteration)
    # Idle before the step began on the host is no part of the step.
    step_begin = work.iterations.step_begin[np.maximum(step, 0)]
    clipped = _Gaps(np.clip(gaps.start, step_begin, gaps.end), gaps.end, gaps.launch)
    return Timeline(
        step_busy=union_ns_by_group(start, end, work.activity_step, count)[used] / 1e6,
        iteration_busy=union_ns_by_group(start, end, work.activity_iteration, count)[used] / 1e6,
        traced_iteration=_ends(work, end)[used] / 1e6,
        iteration_idle=_attribute(work, gaps, np.where(launched, iteration, orphan_home)),
        step_idle=_attribute(work, clipped, step),
    )


def _gaps(start: Ints, end: Ints, launch: Ints) -> _Gaps:
    if not len(start):
        return _Gaps(start, end, launch)
    reach = np.maximum.accumulate(end)
    ending = np.flatnonzero(start[1:] > reach[:-1]) + 1
    return _Gaps(reach[ending - 1], start[ending], launch[ending])


def _next_known(iteration: Ints) -> Ints:
    """Each row's own value, or that of the next row that has one; -1 at the very end."""
    known = np.flatnonzero(iteration >= 0)
    following = np.searchsorted(known, np.arange(len(iteration)))
    values = np.append(iteration[known], -1)
    return values[following]


def _ends(work: Work, end: Ints) -> Ints:
    """GPU time from the last activity of the iterations before to each one's own last."""
    last = np.zeros(len(work.iterations), np.int64)
    inside = work.activity_iteration >= 0
    np.maximum.at(last, work.activity_iteration[inside], end[inside])
    last = np.maximum.accumulate(last)
    before = np.concatenate(([0], last[:-1]))
    return np.where(before > 0, last - before, 0)


def _data_ranges(work: Work) -> Bools:
    return work.trace.ranges[c.NAME].astype(str).str.startswith(DATA_RANGE).to_numpy(bool)


def _attribute(work: Work, gaps: _Gaps, group: Ints) -> IdleParts:
    """Splits each gap and sums the parts by `group`, a row of the iterations or -1."""
    total = gaps.end - gaps.start
    known = gaps.launch >= 0
    call = np.maximum(gaps.launch, 0)
    call_start, call_end, tid = (
        np.append(ints(work.launches, column), 0)[call] for column in (c.START, c.END, c.TID)
    )
    queued = known & (call_end <= gaps.start)
    open_ = known & ~queued
    data, in_sync, in_call = (np.zeros(len(total), np.int64) for _ in range(3))
    ranges = work.trace.ranges[_data_ranges(work)]
    for thread in np.unique(tid[open_]):
        mine = open_ & (tid == thread)
        begin, end, called = gaps.start[mine], gaps.end[mine], call_end[mine]
        # What the thread did after the launch that ended the gap has no part in it.
        until = np.minimum(end, call_start[mine])
        data[mine] = _cover(ranges, thread).inside(begin, until)
        waiting = _sync_cover(work, thread).inside(begin, until)
        in_sync[mine] = np.minimum(waiting, total[mine] - data[mine])
        # From the end of the launch call to the start of the kernel: the launch's own latency.
        latency = np.maximum(end - np.maximum(called, begin), 0)
        in_call[mine] = _cover(work.launches, thread).inside(begin, np.minimum(end, called))
        in_call[mine] += latency
    rest = np.where(open_, total - data - in_sync, 0)
    refill = _refill(work, call_start, rest)
    exposed = rest - refill
    share = np.minimum(in_call / np.maximum(rest, 1), 1.0)
    launch_call = np.rint(exposed * share).astype(np.int64)

    def summed(part: Ints) -> Floats:
        result = np.zeros(len(work.iterations), np.int64)
        kept = group >= 0
        np.add.at(result, group[kept], part[kept])
        return result[work.iterations.used] / 1e6

    return IdleParts(
        idle=summed(total),
        dispatch=summed(np.where(queued, total, 0)),
        data=summed(data),
        sync=summed(in_sync + refill),
        launch_call=summed(launch_call),
        framework=summed(exposed - launch_call),
        unattributed=summed(np.where(known, 0, total)),
    )  # fmt: skip


def _cover(table: pd.DataFrame, thread: int) -> Cover:
    mine = table[table[c.TID] == thread]
    return Cover.of(ints(mine, c.START), ints(mine, c.END))


def _sync_cover(work: Work, thread: int) -> Cover:
    """When the thread was waiting: in a synchronising call; in a copy only once it runs."""
    mine = work.syncs[c.TID] == thread
    start, end = ints(work.syncs[mine], c.START), ints(work.syncs[mine], c.END)
    own = work.own_copy[mine]
    begin = np.where(own >= 0, np.append(ints(work.launches, c.FIRST), 0)[own], start)
    return Cover.of(np.clip(begin, start, end), end)


def _refill(work: Work, call_start: Ints, rest: Ints) -> Ints:
    """How much of each gap's rest is charged to the synchronisation before it.

    A wait of w leaves the host w behind where it would have been, so the idle time that
    follows, up to the next wait, is charged to it until w is used up.
    """
    finish = np.argsort(ints(work.syncs, c.END), kind="stable")
    ends, wait = ints(work.syncs, c.END)[finish], work.waited[finish]
    segment = np.searchsorted(ends, call_start, side="right")  # 0: before any wait
    budget = np.concatenate(([0], wait))[segment]
    through = pd.Series(rest).groupby(segment).cumsum().to_numpy(np.int64)
    charged: Ints = np.minimum(through, budget) - np.minimum(through - rest, budget)
    return charged
