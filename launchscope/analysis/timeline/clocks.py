"""Whether the clocks of host and GPU agree in a trace, and the trace with clocks that do.

A kernel begins after its launch call began, and a synchronization returns after the work that it
waits for has ended: what the trace shows instead bounds how late the GPU's timestamps are. In 81
public traces, 15 recordings and tests/truth (H200) no such bound is off by more than 8 us.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np

from launchscope.frozen import dataclass
from launchscope.parser import columns as c
from launchscope.parser.launches import Launches, find_launches
from launchscope.parser.trace import Bools, Ints, Table, Trace, ints, median_of, unique, where

# Clocks that differ by less are left as they are: a machine's latencies vary by as much.
_TOLERANCE_NS = 100_000
# From a launch call to its kernel on an idle GPU (H200 host).
_LATENCY_NS = 4_000
# Bounds that are further apart do not tell the offset.
_SURE_NS = 500_000
# At most this share of the launches may have timestamps that are wrong by themselves.
_OUTLIERS = 0.01
# A delay is constant where it is that of most of so many idle times or more.
_FEWEST_GAPS = 20
_DEVICE_WAIT = re.compile(r"(?:cu(?:da)?|hip)(?:Device|Ctx)Synchronize")
_WAIT = re.compile(r"(?:cu(?:da)?|hip)(?:Device|Ctx|Stream)Synchronize")


@dataclass(frozen=True)
class ClockOffset:
    """Clocks that disagree: by how many ns the timestamps of a process's work on a GPU are late, at
    least (None: nothing shows it) and at most. Early ones are negative."""

    process: int
    device: int
    low: int | None
    high: int
    is_steady: bool  # throughout the trace

    @property
    def is_possible(self) -> bool:
        return self.is_steady and (self.low is None or self.low <= self.high)

    @property
    def is_sure(self) -> bool:
        return self.is_possible and self.low is not None and self.high - self.low <= _SURE_NS

    @property
    def ns(self) -> int:
        """The offset with which the fastest launch is as fast as launches usually are."""
        usual = self.high - _LATENCY_NS
        return usual if self.low is None else max(usual, self.low)


def align_clocks(trace: Trace, joined: Launches) -> tuple[Trace, Launches, tuple[ClockOffset, ...]]:
    """The trace with the GPU's times on the host's clock where the clocks disagree, its launches,
    and the offsets found. One that is impossible changes nothing."""
    found = _offsets(trace, joined)
    late = np.zeros(len(trace.activities), np.int64)
    pid, device = ints(trace.activities, c.PID), ints(trace.activities, c.DEVICE)
    for each in found:
        if each.is_possible:
            late[np.isin(pid, (each.process, -1)) & (device == each.device)] = each.ns
    if not late.any():
        return trace, joined, found
    start, end = (ints(trace.activities, column) - late for column in (c.START, c.END))
    moved = trace.activities.assign(**{c.START: start, c.END: end, c.LATE: late})
    moved = moved[np.argsort(start, kind="stable")]
    trace = replace(trace, activities=moved)
    return trace, find_launches(trace), found


def _offsets(trace: Trace, joined: Launches) -> tuple[ClockOffset, ...]:
    """The offset of every process and GPU whose clocks disagree."""
    activities, calls, found = joined.activities, joined.calls, []
    launch = ints(activities, c.LAUNCH)
    joined_work = activities if (launch >= 0).all() else activities[launch >= 0]
    launch = launch[launch >= 0]
    device = np.zeros(len(calls), np.int64)
    device[launch] = ints(joined_work, c.DEVICE)
    latency = ints(calls, c.FIRST) - ints(calls, c.START)
    waits = trace.calls[where(trace.calls[c.NAME], _WAIT.match)]
    for process in unique(calls[c.PID]).tolist():
        own = ints(calls, c.PID) == process
        gpus = unique(device[own]).tolist()
        for gpu in gpus:
            mine = own & (device == gpu)
            high = int(latency[mine].min())
            if high < -_TOLERANCE_NS:
                high = int(np.quantile(latency[mine], _OUTLIERS, method="lower"))
            rows = mine[launch]
            work, by = joined_work[rows], launch[rows]
            ends = _ends_behind_copies(work, ints(calls, c.END)[by])
            if len(gpus) == 1:  # nothing tells which GPU a call waits for
                own_waits = waits[ints(waits, c.PID) == process]
                ends = np.append(ends, _ends_behind_waits(calls[mine], work, own_waits))
            low = int(ends.max()) if len(ends) else None
            early, late = high < -_TOLERANCE_NS, low is not None and low > _TOLERANCE_NS
            waited_closely = low is not None and low >= -_TOLERANCE_NS
            if not (early or late) and (waited_closely or high <= _TOLERANCE_NS):
                continue
            # What ends the idle times of a GPU begins as fast as it can, at all times.
            start, reach = ints(work, c.START), np.maximum.accumulate(ints(work, c.END))
            ending = latency[unique(by[1:][start[1:] > reach[:-1]])]
            least = [int(part.min()) for part in np.array_split(ending, 3) if len(part)]
            steady = max(least, default=0) - min(least, default=0) <= _TOLERANCE_NS
            # Waits for other work differ from each other.
            constant = len(ending) >= _FEWEST_GAPS and median_of(ending) - high <= _TOLERANCE_NS
            if early or late or constant:
                found.append(ClockOffset(process, gpu, low, high, steady))
    return tuple(found)


def _ends_behind_copies(work: Table, call_end: Ints) -> Ints:
    """How long after its call each copy to pageable memory ended, for which the call waits."""
    back: Bools = where(work[c.COPY], lambda way: way.endswith("-> Pageable"))
    return (ints(work, c.END) - call_end)[back]


def _ends_behind_waits(launches: Table, work: Table, waits: Table) -> Ints:
    """How long after each synchronization the last work ended that was launched before it."""
    if len(unique(work[c.STREAM])) > 1:  # nothing tells which stream a call waits for
        waits = waits[where(waits[c.NAME], _DEVICE_WAIT.match)]
    launched = ints(launches, c.END)
    order = np.argsort(launched, kind="stable")
    last = np.maximum.accumulate(ints(launches, c.LAST)[order])
    before = np.searchsorted(launched[order], ints(waits, c.START), "right")
    return last[before[before > 0] - 1] - ints(waits, c.END)[before > 0]
