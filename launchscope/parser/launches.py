"""The only definition of a launch: a runtime or driver call whose process and correlation id reach
at least one device activity, never a call of a certain name (a list of names loses a third of the
launches on real traces). One graph launch reaches many kernels and is one launch."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from msgspec import Struct

from launchscope.parser import columns as c
from launchscope.parser.trace import Bools, Ints, Table, Texts, Trace, distinct, ints, unique, where

# Calls that wait for the device, as CUDA's runtime and driver, HIP and Intel's runtimes spell them.
_SYNC = re.compile(
    r"(?:cu(?:da)?|hip)(?:Device|Stream|Event|Ctx|Thread)Synchronize"
    r"|ze(?:CommandQueue|CommandList|Fence|Event)(?:Host)?Synchronize|ur(?:QueueFinish|EventWait)$"
)
_SYNC_COPY = re.compile(r"(?:cu(?:da)?|hip)Memcpy(?!.*Async)(?!.*Peer)")

# In a file of whole microseconds an inner call may end later than the outer one by this.
_ROUNDING_NS = 1000


class Launches(Struct, frozen=True):
    """The launches of a trace, by start, and its activities with the launch they came from.

    `calls` has the call's columns and KIND, KERNELS, FIRST, LAST and BLOCKING. `activities` has
    LAUNCH, and EARLIER: launched before the recording began. `coverage_pct`: the share of the
    others that found their launch. `reused` ones did not: several calls had their id.
    """

    calls: Table
    activities: Table
    row: Ints  # of each launch among the calls of the trace
    coverage_pct: float | None
    reused: int = 0


def find_launches(trace: Trace) -> Launches:
    """Joins host calls to device activities on process and correlation id."""
    calls, activities = trace.calls, trace.activities
    call_id, activity_id, count = _identities(calls, activities)
    # One id may carry a runtime call and the driver call inside it: the outer one is the launch.
    row_of = np.full(count + 1, -1, np.int64)
    row_of[call_id[::-1]] = np.arange(len(calls))[::-1]
    row_of[-1] = -1  # the id of what has none
    caller = row_of[activity_id]
    row_of[_reused(calls, call_id, row_of)] = -1
    reused = int(((caller >= 0) & (row_of[activity_id] < 0)).sum())
    caller = row_of[activity_id]
    launching, _ = distinct(caller[caller >= 0])
    row = np.full(len(calls) + 1, -1, np.int64)
    row[launching] = np.arange(len(launching))
    launch = row[caller]
    found = _with_device_work(calls[launching], activities, launch)
    earlier = _earlier(trace, launch)
    joined = activities.assign(**{c.LAUNCH: launch.astype(np.int32), c.EARLIER: earlier})
    coverage = 100.0 * float((launch[~earlier] >= 0).mean()) if not earlier.all() else None
    return Launches(found, joined, launching, coverage, reused)


def _earlier(trace: Trace, launch: Ints) -> Bools:
    """Whether each activity was launched before the recording began. Its id is smaller than those
    of all recorded calls of its process, or of those that use its device where its own is unknown:
    CUPTI's and ROCm's correlation ids grow with time. And it was queued, not launched by a call
    that was lost."""
    numbered = trace.calls[ints(trace.calls, c.CORRELATION) > 0]
    if not len(numbered):
        return np.zeros(len(trace.activities), bool)
    pid, correlation = ints(trace.activities, c.PID), ints(trace.activities, c.CORRELATION)
    owner, first = ints(numbered, c.PID), ints(numbered, c.CORRELATION)
    device, unknown = ints(trace.activities, c.DEVICE), pid < 0
    least = np.full(len(pid), first.min())
    least[unknown & np.isin(device, device[~unknown])] = np.iinfo(np.int64).max
    for process in unique(owner):
        mine = pid == process
        least[mine] = begins = first[owner == process].min()
        used = unknown & np.isin(device, device[mine])
        least[used] = np.minimum(least[used], begins)
    found: Bools = (launch < 0) & (correlation > 0) & (correlation < least)
    return found & ~_calls_lost(trace, launch, found, int(numbered[c.START][0]))


def _calls_lost(trace: Trace, launch: Ints, earlier: Bools, first_call: int) -> Bools:
    """Those of the seemingly earlier activities whose calls were lost: the host did enough before
    its first recorded call to have made theirs, and the device was not working off a queue. A queue
    leaves the device idle after its last work, lost calls leave it idle between."""
    host = [ints(table, c.START) for table in (trace.ops, trace.ranges) if len(table)]
    start = ints(trace.activities, c.START)
    begin = min((int(times[0]) for times in host), default=first_call)
    late = earlier & (start > begin)
    before = sum(int(np.searchsorted(times, first_call)) for times in host)
    after = max(sum(map(len, host)) - before, 1)
    launches = int(launch.max(initial=-1)) + 1
    running = np.flatnonzero(late & (start < first_call))
    if not len(running) or 2 * before * launches < after * int(late.sum()):
        return np.zeros(len(start), bool)
    reach = np.maximum.accumulate(np.append(begin, ints(trace.activities, c.END)))
    idle = np.maximum(start - reach[:-1], 0)
    queue_ends = running[-1]
    between = int(idle[: queue_ends + 1].sum())
    return late & (between >= first_call - int(reach[queue_ends + 1]))


def _identities(calls: Table, activities: Table) -> tuple[Ints, Ints, int]:
    """A number for each pair of process and correlation id, of calls and of activities, and one
    that is above them; -1 without a process or correlation id."""
    pid = np.concatenate((ints(calls, c.PID), ints(activities, c.PID)))
    correlation = np.concatenate((ints(calls, c.CORRELATION), ints(activities, c.CORRELATION)))
    known = (pid >= 0) & (correlation > 0)  # CUPTI writes 0 for unknown
    processes, process = distinct(pid)
    pair = _numbered(correlation) * max(len(processes), 1) + process
    pair = _numbered(pair)
    identity = np.where(known, pair, -1)
    return identity[: len(calls)], identity[len(calls) :], int(pair.max(initial=-1)) + 1


def _numbered(values: Ints) -> Ints:
    """A number from 0 on for each distinct value: few are left out."""
    least, most = int(values.min(initial=0)), int(values.max(initial=0))
    if most - least < 4 * len(values):  # as ids that somebody counted up
        return values - least
    order = np.argsort(values, kind="stable")  # quick where they are nearly in order
    number = np.empty(len(values), np.int64)
    number[order] = np.cumsum(np.diff(values[order], prepend=least) > 0)
    return number


def _reused(calls: Table, call_id: Ints, row_of: Ints) -> Ints:
    """Ids that several calls have which are not one inside the other, as after merging ranks whose
    processes have the same number into one file."""
    rows = np.arange(len(calls))
    later = rows[(call_id >= 0) & (row_of[call_id] != rows)]
    first = row_of[call_id[later]]
    start, end, tid = (ints(calls, column) for column in (c.START, c.END, c.TID))
    inside = (start[later] < np.maximum(end[first], start[first] + 1)) & (tid[later] == tid[first])
    inside &= end[later] <= end[first] + _ROUNDING_NS
    return unique(call_id[later[~inside]])


def _with_device_work(calls: Table, activities: Table, launch: Ints) -> Table:
    """The launches with what each of them reached on the device, and when that ran."""
    rows = np.flatnonzero(launch >= 0)
    owner, count = launch[rows], len(calls)
    start, end = ints(activities, c.START)[rows], ints(activities, c.END)[rows]
    # Activities are by start: written backwards, the first one of a launch stays.
    first, last = np.zeros(count, np.int64), np.zeros(count, np.int64)
    first[owner[::-1]] = start[::-1]
    np.maximum.at(last, owner, end)
    kinds_of = {kind: (activities[c.KIND] == kind)[rows] for kind in (c.KERNEL, c.MEMCPY)}
    pageable_copy = where(activities[c.COPY], lambda way: "Pageable" in way)[rows]

    def number(chosen: Bools) -> Ints:
        return np.bincount(owner[chosen], minlength=count).astype(np.int64)

    kernels, copies = number(kinds_of[c.KERNEL]), number(kinds_of[c.MEMCPY])
    pageable = number(kinds_of[c.MEMCPY] & pageable_copy) > 0
    several = (number(np.ones(len(rows), bool)) > 1) & (kernels > 0)
    graph = several & ~where(calls[c.NAME], lambda name: "LaunchKernel" in name)
    graph |= where(calls[c.NAME], lambda name: "GraphLaunch" in name)
    synchronous = where(calls[c.NAME], _SYNC_COPY.match)
    kinds = np.select([graph, kernels > 0, copies > 0], [0, 1, 2], default=3)
    reached: dict[str, Any] = {
        c.KERNELS: kernels.astype(np.int32),
        c.FIRST: first,
        c.LAST: last,
        c.KIND: Texts(kinds.astype(np.int8), (c.GRAPH, c.KERNEL, c.MEMCPY, c.MEMSET)),
        c.BLOCKING: (copies > 0) & (pageable | synchronous),
    }
    return calls.assign(**reached)


def synchronizations(trace: Trace, launches: Launches) -> Table:
    """Host calls that wait for the device, by start: a call's columns, `counted`, and in `launch`
    the row of the launch that it is, or -1. A pageable copy is one; together with the
    synchronization that PyTorch makes after it, it counts once."""
    explicit = np.flatnonzero(where(trace.calls[c.NAME], _SYNC.match))
    row = np.concatenate((explicit, launches.row))
    start, pid, tid = (ints(trace.calls, column)[row] for column in (c.START, c.PID, c.TID))
    order = np.lexsort((start, tid, pid))
    launch = np.maximum(order - len(explicit), -1)
    waits = launch < 0
    same = (np.diff(pid[order], append=-1) == 0) & (np.diff(tid[order], append=-1) == 0)
    followed = np.append(waits[1:], False) & same
    kept = np.flatnonzero(waits | np.append(launches.calls[c.BLOCKING], True)[launch])
    kept = kept[np.argsort(start[order[kept]], kind="stable")]
    found = trace.calls[row[order[kept]]]
    return found.assign(**{c.COUNTED: (waits | ~followed)[kept], c.LAUNCH: launch[kept]})
