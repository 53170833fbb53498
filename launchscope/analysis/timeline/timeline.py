"""GPU busy and idle time of the traced iterations, and what caused each idle gap.

A gap ends when a device activity starts, and belongs to the thread and the iteration whose
launch started that activity. Parts of a gap, in the order in which they are taken:

- dispatch: all of it, when the launch call had returned before the GPU went idle; otherwise from
  the return of the call on, if that is a stall: the activity waited for more than its launch;
- data: while that thread was in the data loader;
- sync: while that thread was in a synchronization, and afterwards up to as much idle time as the
  host had waited, because without the wait it would have been that much further ahead;
- setup: while that thread allocated or freed memory, loaded a module or instantiated a graph;
- pauses: as much of the rest of a gap as is too long for a launch, of a trace by itself;
- launch call and framework: the rest, by whether the thread was in a launch call;
- unattributed: gaps that an activity without a known launch ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import numpy as np
from msgspec import Struct

from launchscope.analysis.steps.iterations import DATA_RANGE, ranges_named
from launchscope.analysis.timeline.intervals import Cover
from launchscope.analysis.timeline.work import Work
from launchscope.model import IdleCause
from launchscope.parser import columns as c
from launchscope.parser.trace import Floats, Ints, Table, ints, median_of, where

# Two kinds of idle time that a replay removes where it is short, and keeps where it is long: below
# the first limit all of it goes, above the last one all stays, and between them is unknown. What
# may stay grows from the first to the second limit, what does stay from the third to the last.
# An activity that starts so long after its launch call returned, on an idle GPU, waits for another
# stream, a collective or work that the trace lacks. The longest in 14 recordings (H200) is 8 us, in
# traces of an MI300X 86 us.
STALL_NS = (100_000, 200_000, 200_000, 400_000)
# The GPU takes at most so long from one queued activity to the next.
_DISPATCH_NS = 20_000
# A host that launches nothing for so long prepares data, sets something up or pauses. The longest
# gap in a step of the 14 recordings is 1.0 ms.
PAUSE_NS = (1_000_000, 2_000_000, 2_000_000, 10_000_000)
# A shorter gap counts as launch overhead. But one that is so many times as long as usual between
# two launches of a step, and at least so long, may be other work of the host.
_UNUSUAL, _LEAST_UNUSUAL_NS = 20, 200_000
_SETUP = re.compile(
    r"(?:cuda|hip)(?:Malloc|Free|Host(?:Alloc|Malloc|Free|Register))"
    r"|cuMem(?:Alloc|Free|Host|Create|Map|Unmap|Release|SetAccess)"
    r"|(?:cuda|cu|hip)(?:(?:Module|Library)(?:Load|Unload)|GraphInstantiate)"
)


# The order in which the parts of a gap are drawn: as far as they have one, in that of time.
CAUSES: tuple[IdleCause, ...] = (
    "data", "sync", "setup", "paused", "framework", "launch_call", "dispatch", "unattributed",
)  # fmt: skip
# Per used iteration: milliseconds of idle time in all (`idle`), and by cause; how many `gaps` there
# are, and with `pauses`. `stalled` is a part of `dispatch`. Of `paused` and `stalled` together half
# of `unsure` more or less may stay in a replay, and of the rest `unusual` more, or even `outside`:
# then the host was in no operator.
Idle = dict[str, Floats]


class Gaps(Struct, frozen=True):
    """Idle gaps [start, end), by time, and nanoseconds of each by cause, and by what of `Idle` they
    count for. `launch`: the one that ended it, and `group`: a row of the iterations; -1 for none.
    """

    start: Ints
    end: Ints
    launch: Ints
    group: Ints
    parts: dict[str, Ints]

    def by_cause(self, rows: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """The causes of these gaps, side by side: begins, ends, rows of `CAUSES`, and gaps."""
        parts = np.stack([self.parts[cause][rows] for cause in CAUSES], axis=1)
        gap, cause = np.nonzero(parts)
        end = (self.start[rows, None] + np.cumsum(parts, axis=1))[gap, cause]
        return end - parts[gap, cause], end, cause, rows[gap]


class Timeline(Struct, frozen=True):
    """Milliseconds per used iteration of the trace. Only the busy times are comparable with
    untraced ones: tracing stretches the others."""

    step_busy: Floats
    iteration_busy: Floats
    # From the GPU's end of the iteration before to its own, or as `single_window` says.
    traced_iteration: Floats
    iteration_idle: Idle
    step_idle: Idle
    exposed_ns: Ints  # of each launch: idle time of used iterations that launching caused

    @property
    def busy_between_ms(self) -> float:
        """How long the GPU is busy between two steps."""
        if not len(self.iteration_busy) or not len(self.step_busy):
            return 0.0
        return max(median_of(self.iteration_busy) - median_of(self.step_busy), 0.0)


def kept(idle: Idle) -> Floats:
    """What no replay of the step can remove, beside set-up and pauses."""
    return idle["stalled"] + idle["unattributed"] + idle["data"]


def exposed(idle: Idle) -> Floats:
    """What the GPU waits for launches."""
    return idle["framework"] + idle["launch_call"]


def build_timeline(work: Work) -> Timeline:
    """Busy union and idle attribution of every used iteration."""
    gaps = idle_gaps(work)
    of_iterations = next(gaps)
    exposed_ns, iteration_idle = _exposed_ns(work, of_iterations), _summed(work, of_iterations)
    del of_iterations  # a long trace has millions of gaps
    return Timeline(
        step_busy=work.busy_ms(work.activity_step),
        iteration_busy=work.busy_ms(work.activity_iteration),
        traced_iteration=np.subtract(*iteration_spans(work)[::-1])[work.iterations.used] / 1e6,
        iteration_idle=iteration_idle,
        step_idle=_summed(work, next(gaps)),
        exposed_ns=exposed_ns,
    )


def idle_gaps(work: Work) -> Iterator[Gaps]:
    """Every idle gap of the iterations, and then of the steps, with its causes. One after the
    other, because a long trace has millions."""
    _ = work.launching  # made before the gaps are, because both need memory
    gaps = _gaps(work)
    yield _attribute(work, *gaps, _owners(work, gaps[2]))
    yield _attribute(work, *_in_steps(work, *gaps))


def _gaps(work: Work) -> tuple[Ints, Ints, Ints]:
    """Begin and end of each idle time of the device, and the launch that ended it; -1 unknown."""
    start, end = ints(work.activities, c.START), ints(work.activities, c.END)
    launch = ints(work.activities, c.LAUNCH)
    reach = np.maximum.accumulate(end)
    ending = np.flatnonzero(start[1:] > reach[:-1]) + 1
    idle_from, idle_until, by = reach[ending - 1], start[ending], launch[ending]
    if work.iterations.single:
        opens, closes = single_window(work)
        idle_from = np.concatenate(([opens], idle_from, reach[-1:])).clip(opens, closes)
        idle_until = np.concatenate((start[:1], idle_until, [closes])).clip(idle_from, closes)
        by = np.concatenate((launch[:1], by, [-1]))  # nothing ends the last one
    return idle_from, idle_until, by


def _owners(work: Work, launch: Ints) -> Ints:
    """The iteration of the launch that ends each gap. Without one, the gap goes to that of the next
    gap that has one; over the whole trace it is idle time, too."""
    if work.iterations.single:
        return np.zeros(len(launch), np.int64)
    iteration = np.append(work.iteration, 0 if work.iterations.whole else -1)[launch]
    known = np.where(iteration >= 0, np.arange(len(iteration)), len(iteration))
    following = np.minimum.accumulate(known[::-1])[::-1]
    return np.where(launch >= 0, iteration, np.append(iteration, -1)[following])


def _in_steps(work: Work, start: Ints, end: Ints, launch: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Gaps from when their steps began on the host, with these steps: before, they are no part of
    it."""
    step = np.append(work.step, 0 if work.iterations.whole else -1)[launch]
    begin = work.iterations.step_begin[np.maximum(step, 0)]
    return np.clip(start, begin, end), end, launch, step


def unusual_limits(work: Work) -> tuple[int, int, int, int]:
    """`PAUSE_NS` for these steps, where gaps much longer than usual are pauses, too."""
    row = np.flatnonzero(np.isin(work.step, work.iterations.used))
    gap = ints(work.launches, c.START)[row][1:] - ints(work.launches, c.END)[row][:-1]
    gap = gap[np.diff(work.step[row]) == 0]
    usual = median_of(gap) if len(gap) else PAUSE_NS[0]
    least = int(np.clip(_UNUSUAL * usual, _LEAST_UNUSUAL_NS, PAUSE_NS[0]))
    return (least, 2 * least, *PAUSE_NS[2:])


def staying(idle: Ints, limits: tuple[int, int, int, int]) -> tuple[Ints, Ints]:
    """What stays of each idle time in a replay, in ns: the mean of the least and the most that may,
    and the difference of these two."""
    least, most = (
        idle * np.clip((idle - low) / (high - low), 0, 1) for low, high in (limits[2:], limits[:2])
    )
    return np.rint((least + most) / 2).astype(np.int64), np.rint(most - least).astype(np.int64)


def iteration_spans(work: Work) -> tuple[Ints, Ints]:
    """On the GPU: from the last activity of the iterations before to each one's own last. Both are
    equal where that is not known."""
    if work.iterations.single:
        opens, closes = single_window(work)
        return np.array([opens]), np.array([closes])
    last = np.maximum.accumulate(work.last_end(work.activity_iteration))
    before = np.append(0, last[:-1])
    return np.where(before > 0, before, last), last


def single_window(work: Work) -> tuple[int, int]:
    """When the only step begins on the GPU, after work that was launched before it, and ends: with
    its mark or with its last work. A long time before the first launch of a file, in which no data
    is loaded, is no part of it."""
    start, end = ints(work.activities, c.START), ints(work.activities, c.END)
    own, begin = work.activity_iteration >= 0, int(work.iterations.begin[0])
    if not own.any():
        return begin, int(work.iterations.end[0])
    first = int(start[own].min())
    call = int(ints(work.launches, c.START)[work.iteration >= 0].min(initial=first))
    loaded = ints(ranges_named(work.trace, DATA_RANGE), c.START)
    late = call - begin > PAUSE_NS[0] and not ((loaded >= begin) & (loaded < call)).any()
    if late and start.min() == first:
        begin = call
    earlier = min(int(end[start < first].max(initial=begin)), first)
    return max(begin, earlier), max(int(work.iterations.end[0]), int(end[own].max()))


def _attribute(work: Work, start: Ints, end: Ints, launch: Ints, group: Ints) -> Gaps:
    """Splits idle gaps, each ended by the launch of this row (-1: none)."""
    total, known = end - start, launch >= 0

    def of_launch(column: str) -> Ints:
        return np.append(ints(work.launches, column), 0)[np.maximum(launch, 0)]

    call_end = of_launch(c.END)
    queued = known & (call_end <= start)
    open_ = known & ~queued
    # How long the activity waited for something else than its call, and how unsure that is.
    behind = np.where(known, np.maximum(end - np.maximum(call_end, start), 0), 0)
    stalled, unsure = staying(behind, STALL_NS)

    def spread(part: Ints) -> Ints:
        every = np.zeros(len(total), np.int64)
        every[open_] = part
        return every

    data, in_sync, setup, in_call, outside = map(
        spread, _host_parts(work, start[open_], (end - stalled)[open_], launch[open_])
    )
    rest = np.where(open_, total - stalled - data, 0)
    in_sync = np.minimum(in_sync, rest)
    setup = np.minimum(setup, rest - in_sync)
    rest -= in_sync + setup
    refill = _refill(work, of_launch(c.START), rest)
    late_ns = rest - refill
    paused, unsure_pause = staying(late_ns * work.alone, PAUSE_NS)
    middle, unsure_unusual = staying(late_ns * work.alone, unusual_limits(work))
    unusual = np.maximum(middle + unsure_unusual // 2 - paused - unsure_pause // 2, 0)
    # Long before this gap its launch had returned: no latency of the call explains the gap.
    late = known & (call_end + STALL_NS[0] <= start) & (total > _DISPATCH_NS)
    unusual += np.where(late & work.alone, total - stalled, 0)
    late_ns -= paused
    launch_call = np.rint(late_ns * np.minimum(in_call / np.maximum(rest, 1), 1.0)).astype(np.int64)
    framework = late_ns - launch_call
    parts = {
        "dispatch": np.where(queued, total, stalled),
        "stalled": stalled,
        "data": data,
        "sync": in_sync + refill,
        "setup": setup,
        "launch_call": launch_call,
        "framework": framework,
        "paused": paused,
        "unattributed": np.where(known, 0, total),
        "unsure": unsure + unsure_pause,
        "unusual": unusual,
        # A replay removes what is charged to a wait before, too.
        "outside": np.maximum(unusual, np.minimum(outside, framework + refill) * work.alone),
    }
    return Gaps(start, end, launch, group, parts)


def _summed(work: Work, gaps: Gaps) -> Idle:
    """The parts of the gaps, per used iteration."""
    summed = partial(work.iterations.summed, gaps.group)
    total = gaps.end - gaps.start
    idle = {name: summed(part) / 1e6 for name, part in gaps.parts.items()}
    counts = {"gaps": summed(total > 0), "pauses": summed(gaps.parts["paused"] > 0)}
    return {"idle": summed(total) / 1e6, **idle, **counts}


def _exposed_ns(work: Work, gaps: Gaps) -> Ints:
    found = np.zeros(len(work.launches), np.int64)
    mine = (gaps.launch >= 0) & np.isin(gaps.group, work.iterations.used)
    exposed_ns = gaps.parts["framework"] + gaps.parts["launch_call"]
    np.add.at(found, gaps.launch[mine], exposed_ns[mine])
    return found


def _host_parts(work: Work, begin: Ints, stop: Ints, launch: Ints) -> tuple[Ints, ...]:
    """For gaps that these launches ended late: how long the launching thread was in the data loader
    and in synchronizations before its call, in set-up, and otherwise in launch calls; and how long
    no launching thread was in anything that launches, as far as the trace shows."""
    call_start, call_end, thread = (
        ints(work.launches, column)[launch] for column in (c.START, c.END, c.TID)
    )
    # From the end of the launch call to the start of the kernel: the launch's own latency.
    in_call = np.maximum(stop - np.maximum(call_end, begin), 0)
    in_call += _cover(work.launches).inside(begin, np.minimum(stop, call_end), thread)
    # What the thread did after the launch that ended the gap has no part in it.
    until = np.minimum(stop, call_start)
    data = _cover(ranges_named(work.trace, DATA_RANGE)).inside(begin, until, thread)
    calls = work.iterations.of_process(work.trace.calls)
    set_up = _cover(calls[where(calls[c.NAME], _SETUP.match)])
    before = set_up.inside(begin, until, thread)
    # A launch call loads the module of its kernel.
    loads = set_up.inside(np.maximum(begin, call_start), np.minimum(stop, call_end), thread)
    waited = _sync_cover(work).inside(begin, until, thread)
    outside = np.maximum(until - begin, 0) - work.launching.inside(begin, until)
    return data, waited, before + loads, np.maximum(in_call - loads, 0), outside


def _cover(table: Table) -> Cover:
    """What the rows of each thread cover."""
    return Cover.of(ints(table, c.START), ints(table, c.END), ints(table, c.TID))


def _sync_cover(work: Work) -> Cover:
    """When each thread was waiting: in a synchronizing call; in a copy only once it runs."""
    start, end = ints(work.syncs, c.START), ints(work.syncs, c.END)
    own = work.own_copy
    begin = np.where(own >= 0, np.append(ints(work.launches, c.FIRST), 0)[own], start)
    return Cover.of(np.clip(begin, start, end), end, ints(work.syncs, c.TID))


def _refill(work: Work, call_start: Ints, rest: Ints) -> Ints:
    """How much of each gap's rest is charged to the synchronization before it: a wait of w leaves
    the host w behind, so idle time up to the next wait is charged to it until w is used up. Threads
    that launch nothing may wait without making anybody late."""
    held = np.isin(work.syncs[c.TID], work.launches[c.TID])
    syncs, waited = work.syncs[held], work.waited[held]
    finish = np.argsort(ints(syncs, c.END), kind="stable")
    ends, wait = ints(syncs, c.END)[finish], waited[finish]
    segment = np.searchsorted(ends, call_start, side="right")  # 0: before any wait
    budget = np.concatenate(([0], wait))[segment]
    order = np.argsort(segment, kind="stable")
    opens = np.diff(segment[order], prepend=-1) != 0
    through = np.cumsum(rest[order])
    through -= (through - rest[order])[opens][np.cumsum(opens) - 1]
    through[order] = through.copy()
    charged: Ints = np.minimum(through, budget) - np.minimum(through - rest, budget)
    return charged
