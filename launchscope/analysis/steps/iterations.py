"""Where the steps and iterations of a trace begin and end, and which of them count.

Iteration i runs from the end of step i-1 to the end of step i, in host time. Its device work
is what the host launched in that window, whenever it ran.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from launchscope.model import CALIBRATION_RANGE, STEP_RANGE
from launchscope.parser import columns as c
from launchscope.parser.trace import Ints, Trace, ints

__all__ = ["Iterations", "find_iterations", "whole_span"]

# Marks of torch.profiler's own schedule, for traces that launchscope did not record.
_PROFILER_STEP = "ProfilerStep#"


@dataclass(frozen=True)
class Iterations:
    """Windows of host time, one per step, by time; `used` are the rows that are measured."""

    begin: Ints  # end of the step before; of the first, its own begin
    step_begin: Ints
    end: Ints  # exclusive
    used: Ints
    pid: int | None  # the process whose steps these are; None: any
    whole: bool = False  # one window over the whole trace, orphans and all

    def __len__(self) -> int:
        return len(self.end)

    def of(self, time: Ints) -> Ints:
        """Row of the iteration that each host time falls in, -1 for none."""
        row = np.searchsorted(self.end, time, side="right")
        inside = row < len(self.end)
        row = np.where(inside, row, 0)
        return np.where(inside & (time >= self.begin[row]), row, -1)

    def step_of(self, time: Ints) -> Ints:
        """Row of the step that each host time falls in, -1 between steps."""
        row = self.of(time)
        return np.where((row >= 0) & (time >= self.step_begin[np.maximum(row, 0)]), row, -1)


def find_iterations(
    trace: Trace,
    drop_first: int = 1,
    kinds: tuple[int, ...] = (),
    kind: int | None = None,
    also: tuple[str, ...] = (),
) -> Iterations | None:
    """The iterations between the trace's step ranges; None when nothing was launched.

    The first step has no iteration of its own, because the work before it was not traced, so
    at least one is dropped where there are several. Without any mark the whole trace is taken
    as one step. `kinds[i]` is the kind of step i; only steps of `kind` are used if it is given.
    Ranges whose names begin like one of `also` are steps too.
    """
    ranges = trace.ranges
    names = ranges[c.NAME].astype(str)
    for prefix in (f"{STEP_RANGE}#", STEP_RANGE, _PROFILER_STEP):
        steps = ranges[names.str.startswith((prefix, *also))]
        if len(steps):
            break
    else:
        # A trace of our own without a step ended before the first one.
        return None if (names == CALIBRATION_RANGE).any() else whole_span(trace)
    pid = int(steps[c.PID].mode().iloc[0])
    steps = steps[steps[c.PID] == pid].sort_values(c.START, kind="stable")
    calibration = ranges.loc[names == CALIBRATION_RANGE, c.START]
    if len(calibration):
        steps = steps[steps[c.START] < int(calibration.min())]
    if not len(steps):
        return None
    begin, end = ints(steps, c.START), ints(steps, c.END)
    window = np.concatenate((begin[:1], end[:-1]))
    count = len(end)
    used = np.arange(count)[max(drop_first, 1) :] if count > 1 else np.arange(count)
    if kind is not None and len(kinds) == count:
        used = used[np.asarray(kinds)[used] == kind]
    return Iterations(window, np.maximum(begin, window), end, used, pid)


def whole_span(trace: Trace) -> Iterations | None:
    """All of the trace as one step; None when it holds neither calls nor device work."""
    tables = [table for table in (trace.calls, trace.activities) if len(table)]
    if not tables:
        return None
    begin = np.asarray([min(int(ints(table, c.START).min()) for table in tables)], np.int64)
    end = np.asarray([max(int(ints(table, c.END).max()) for table in tables) + 1], np.int64)
    return Iterations(begin, begin, end, np.arange(1), None, whole=True)
