"""What a step is in a trace that somebody else recorded, and how that was found out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from launchscope.analysis.steps.iterations import Iterations, whole_span
from launchscope.analysis.steps.period import Period, find_period
from launchscope.errors import InputError
from launchscope.model import CALIBRATION_RANGE, STEP_RANGE, StepBoundary
from launchscope.parser import columns as c
from launchscope.parser.launches import Launches
from launchscope.parser.trace import Ints, Trace, ints

__all__ = ["Steps", "steps_of"]

# Ranges that mark a step, best first: our own, torch.profiler's, Lightning's.
_MARKS = (f"{STEP_RANGE}#", STEP_RANGE, "ProfilerStep#", "ProfilerStep*")
_OPTIMIZER = "Optimizer.step#"


@dataclass(frozen=True)
class Steps:
    iterations: Iterations
    boundary: StepBoundary
    notes: tuple[str, ...] = ()


def steps_of(
    trace: Trace, launches: Launches, step_from: str = "auto", step_range: str | None = None
) -> Steps:
    """The steps of a trace.

    `step_range` names the ranges that are steps (their whole name, or what it begins with).
    Otherwise `step_from`: auto takes marks, then the period of the launches, then the whole
    span; marker only marks, optimizer the time between the ends of optimizer steps, none the
    whole span. Raises InputError when what is asked for is not in the trace.
    """
    if step_range is not None:
        return _named(trace, launches, step_range)
    if step_from == "none":
        return _whole(trace, ("every figure is a total over the whole span, taken as one step",))
    if step_from == "optimizer":
        return _between_optimizers(trace)
    for prefix in _MARKS:
        marks = _beginning(trace.ranges, prefix)
        found = _from_ranges(trace, launches, marks, prefix.rstrip("#*"))
        if found is not None:
            return found
    if step_from == "marker":
        raise InputError(
            "the trace has no step marks",
            hint="--step-range NAME takes other ranges, --step-from auto looks for a period",
        )
    return _repeating(trace, launches) or _whole(
        trace,
        (
            "no step was found in the trace: every figure is a total over its whole span, taken as "
            "one step",
        ),
    )


def _beginning(ranges: pd.DataFrame, prefix: str) -> pd.DataFrame:
    return ranges[ranges[c.NAME].astype(str).str.startswith(prefix).to_numpy(bool)]


def _named(trace: Trace, launches: Launches, name: str) -> Steps:
    names = trace.ranges[c.NAME].astype(str)
    exact = trace.ranges[(names == name).to_numpy(bool)]
    chosen = exact if len(exact) else _beginning(trace.ranges, name)
    found = _from_ranges(trace, launches, chosen, name)
    if found is None:
        known = names.str.replace(r"#.*$", "", regex=True).value_counts().index[:5]
        raise InputError(
            f"the trace has no range named {name}",
            hint=f"its most frequent ranges are {', '.join(map(str, known))}"
            if len(known)
            else "it has no ranges at all",
        )
    return found


def _from_ranges(trace: Trace, launches: Launches, ranges: pd.DataFrame, name: str) -> Steps | None:
    """Steps that are ranges of one thread; nested ones of the same name count once."""
    if not len(ranges):
        return None
    pid, tid = _main_thread(ranges, launches)
    mine = (ranges[c.PID] == pid) & (ranges[c.TID] == tid)
    steps = ranges[mine].sort_values([c.START, c.END], ascending=[True, False], kind="stable")
    calibration = trace.ranges.loc[trace.ranges[c.NAME] == CALIBRATION_RANGE, c.START]
    if len(calibration):
        steps = steps[steps[c.START] < int(calibration.min())]
    begin, end = ints(steps, c.START), ints(steps, c.END)
    if not len(begin):
        return None
    reach = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end)[:-1]))
    outer = begin >= reach
    begin, end = begin[outer], end[outer]
    boundary = StepBoundary("marker", ("range",), (name,), "full_step")
    return Steps(_windows(begin, end, pid), boundary)


def _main_thread(ranges: pd.DataFrame, launches: Launches) -> tuple[int, int]:
    """Process and thread with the most of these ranges, of the threads that launch; where none
    of them does, of the processes that do."""
    often = ranges.groupby([c.PID, c.TID]).size()
    called = launches.calls[[c.PID, c.TID]].drop_duplicates()
    for known in (
        often.index.isin(pd.MultiIndex.from_frame(called)),
        often.index.get_level_values(0).isin(called[c.PID]),
    ):
        if known.any():
            often = often[known]
            break
    pid, tid = often.index[int(np.argmax(often.to_numpy()))]
    return int(pid), int(tid)


def _windows(begin: Ints, end: Ints, pid: int, follows: Ints | None = None) -> Iterations:
    """The first step has no iteration of its own; nor has one that does not follow another."""
    count = len(end)
    window = np.concatenate((begin[:1], end[:-1]))
    used = np.arange(count)[1:] if count > 1 else np.arange(count)
    if follows is not None and follows[used].any():
        used = used[follows[used].astype(bool)]
    return Iterations(window, np.maximum(begin, window), end, used, pid)


def _between_optimizers(trace: Trace) -> Steps:
    found = _beginning(trace.ranges, _OPTIMIZER)
    if not len(found):
        raise InputError(
            "the trace has no optimizer steps",
            hint="--step-from auto looks for marks and for a period of the launches",
        )
    pid = int(found[c.PID].mode().iloc[0])
    end = np.sort(ints(found[found[c.PID] == pid], c.END))
    calls = trace.calls[trace.calls[c.PID] == pid]
    first = int(ints(calls, c.START).min()) if len(calls) else int(end[0])
    begin = np.concatenate(([min(first, int(end[0]))], end[:-1]))
    names = tuple(found[c.NAME].astype(str).str.removeprefix(_OPTIMIZER).unique()[:3])
    return Steps(_windows(begin, end, pid), StepBoundary("optimizer", ("optimizer",), names,
                                                         "full_step"))  # fmt: skip


def _repeating(trace: Trace, launches: Launches) -> Steps | None:
    """Steps from the period of what the busiest process launches."""
    calls = launches.calls
    if not len(calls):
        return None
    pids, often = np.unique(ints(calls, c.PID), return_counts=True)
    pid = int(pids[np.argmax(often)])
    rows = np.flatnonzero(ints(calls, c.PID) == pid)
    start, end = ints(calls, c.START)[rows], ints(calls, c.END)[rows]
    codes = _codes(launches)[rows]
    gap = np.concatenate(([0], start[1:] - np.maximum.accumulate(end)[:-1]))
    found = find_period(codes, gap)
    if found is None:
        return None
    last = found.starts + found.length - 1
    windows = _windows(start[found.starts], end[last], pid, found.follows.astype(np.int64))
    return Steps(windows, _boundary(found), _told(found, len(rows)))


def _boundary(found: Period) -> StepBoundary:
    return StepBoundary("launches", (f"{found.length:,} launches that repeat",), (), "full_step")


def _told(found: Period, count: int) -> tuple[str, ...]:
    share = 100.0 * found.covered / count
    said = (
        f"nothing marks a step in the trace: one is {found.length:,} launches that repeat "
        f"{len(found.starts):,} times ({share:.0f} % of all launches)"
    )
    return (said,)


def _codes(launches: Launches) -> Ints:
    """One number per launch for what it starts: the name of its first device activity."""
    activities = launches.activities
    known = ints(activities, c.LAUNCH) >= 0
    launch = ints(activities, c.LAUNCH)[known]
    names, _ = pd.factorize(activities[c.NAME])
    code = np.zeros(len(launches.calls), np.int64)
    # Activities are by start: written backwards, the first one of a launch stays.
    code[launch[::-1]] = names[known][::-1] + 1
    return code


def _whole(trace: Trace, notes: tuple[str, ...]) -> Steps:
    span = whole_span(trace)
    if span is None:
        raise InputError(
            "the trace holds no device work and no CUDA calls",
            hint="record it with ProfilerActivity.CUDA, on a machine with a GPU",
        )
    return Steps(span, StepBoundary("none", ("whole span",), (), "full_step"), notes)
