"""Where the steps and iterations of a trace begin and end, and which of them count.

Iteration i runs from the end of step i-1 to the end of step i, in host time. Its device work is
what the host launched in that window, whenever it ran.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from launchscope.model import CALIBRATION_RANGE, STEP_RANGE
from launchscope.parser import columns as c
from launchscope.parser.trace import Bools, Floats, Ints, Table, Trace, ints, where

# Ranges that mark a step, best first: our own, those of torch.profiler's schedule, Lightning's.
STEP_MARKS = (f"{STEP_RANGE}#", STEP_RANGE, "ProfilerStep#", "ProfilerStep*")
OPTIMIZER_RANGE = "Optimizer.step#"  # how torch's range around an optimizer's step begins
DATA_RANGE = "enumerate(DataLoader)"  # ... and around a batch of its data loader


class Iterations(Struct, frozen=True):
    """Windows of host time, one per step, by time; `used` are the rows that are measured."""

    begin: Ints  # end of the step before; for the first, its own begin
    step_begin: Ints
    end: Ints  # exclusive
    used: Ints
    pid: int | None  # the process whose steps these are; None: any
    whole: bool = False  # one window over the whole trace, orphans included

    @classmethod
    def between(cls, begin: Ints, end: Ints, pid: int, follows: Bools | None = None) -> Iterations:
        """Iterations of steps by their begins and ends. A step that follows no other is not used,
        unless there is only one: the work before it was not traced."""
        window = np.concatenate((begin[:1], end[:-1]))
        used = np.arange(int(len(end) > 1), len(end))
        if follows is not None and follows[used].any():
            used = used[follows[used]]
        return cls(window, np.maximum(begin, window), end, used, pid)

    def __len__(self) -> int:
        return len(self.end)

    @property
    def single(self) -> bool:
        """Whether there is one marked step, so that none ends where it begins."""
        return len(self) == 1 and not self.whole

    def of_process(self, table: Table) -> Table:
        """The rows of the process whose steps these are."""
        mine = None if self.pid is None else table[c.PID] == self.pid
        return table if mine is None or mine.all() else table[mine]

    def of(self, time: Ints) -> Ints:
        """Row of the iteration that each host time falls in, -1 for none."""
        row = np.searchsorted(self.end, time, side="right")
        begin = np.append(self.begin, np.iinfo(np.int64).max)
        return np.where(time >= begin[row], row, -1)

    def step_of(self, time: Ints) -> Ints:
        """Row of the step that each host time falls in, -1 between steps."""
        row = self.of(time)
        return np.where((row >= 0) & (time >= self.step_begin[np.maximum(row, 0)]), row, -1)

    def summed(self, row: Ints, amount: Bools | Floats | Ints | None = None) -> Floats:
        """For each used iteration the sum of the amounts of its rows, or their number; -1 is the
        row of none."""
        return np.bincount(row + 1, amount, len(self) + 1)[1:][self.used].astype(np.float64)


def find_iterations(
    trace: Trace,
    drop_first: int = 1,
    kinds: tuple[int, ...] = (),
    kind: int | None = None,
    also: tuple[str, ...] = (),
) -> Iterations | None:
    """The iterations between the step ranges of a trace that a run recorded; None without any.

    Of several steps at least the first is dropped. Without marks the whole trace is one step.
    `kinds[i]` is the kind of step i, and only those of `kind` are used. `also` are more prefixes.
    """
    for prefix in STEP_MARKS:
        steps = ranges_named(trace, prefix, *also)
        if len(steps):
            break
    else:
        # A trace of our own without a step ended before the first one.
        calibrated = (trace.ranges[c.NAME] == CALIBRATION_RANGE).any()
        return None if calibrated else whole_span(trace)
    pid = most_frequent(ints(steps, c.PID))
    steps = before_calibration(trace, steps[steps[c.PID] == pid])
    if not len(steps):
        return None
    found = Iterations.between(ints(steps, c.START), ints(steps, c.END), pid)
    used = found.used[max(drop_first - 1, 0) :] if len(found) > 1 else found.used
    if kind is not None and len(kinds) == len(found):
        used = used[np.asarray(kinds)[used] == kind]
    return replace(found, used=used)


def most_frequent(values: Ints) -> int:
    """The smallest of the most frequent values."""
    distinct, often = np.unique(values, return_counts=True)
    return int(distinct[often.argmax()])


def ranges_named(trace: Trace, *prefixes: str) -> Table:
    """The trace's ranges whose names begin with one of these."""
    return trace.ranges[where(trace.ranges[c.NAME], lambda name: name.startswith(prefixes))]


def before_calibration(trace: Trace, steps: Table) -> Table:
    """The ranges that begin before the profiler's calibration, which follows the steps."""
    calibrations = trace.ranges[trace.ranges[c.NAME] == CALIBRATION_RANGE]
    before: Bools = ints(steps, c.START) < ints(calibrations, c.START).min(initial=2**62)
    return steps[before]


def whole_span(trace: Trace) -> Iterations | None:
    """All of the trace as one step; None when it holds neither calls nor device work."""
    start, end = (
        np.concatenate([ints(table, column) for table in (trace.calls, trace.activities)])
        for column in (c.START, c.END)
    )
    if not len(start):
        return None
    begin, end = start.min(keepdims=True), end.max(keepdims=True) + 1
    return Iterations(begin, begin, end, np.arange(1), None, whole=True)
