"""Which steps of a trace are whole: nothing of their work was cut off or lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from launchscope.analysis.steps.steps import Steps
from launchscope.analysis.timeline.work import Bools
from launchscope.errors import InputError
from launchscope.parser import columns as c
from launchscope.parser.launches import Launches
from launchscope.parser.trace import Trace, ints

__all__ = ["whole_steps"]

# Calls that cannot go without device work, unless a stream is being captured.
_SURE = r"Launch(?:Cooperative)?Kernel|GraphLaunch"
# A thread with fewer of the launches may have ended long before the trace did.
_THREAD_SHARE = 0.05


def whole_steps(trace: Trace, joined: Launches, steps: Steps) -> Steps:
    """The steps without those that are known to lack work, and a note that counts them.

    A launch without device work means that the profiler, or the file, lost it. In a file that
    was cut each thread's calls break off at a place of their own, because Kineto writes one
    thread after the other; only steps before the first of these places count.

    Raises InputError when a cut file has no such step. Where every step lost work, as when each
    of them captures a graph, all stay and the note says so.
    """
    windows = steps.iterations
    missed = _lost(trace, joined)
    if windows.pid is not None:
        missed &= ints(trace.calls, c.PID) == windows.pid
    lost = ints(trace.calls, c.START)[missed]
    partial = np.zeros(len(windows), np.bool_)
    row = windows.of(lost)
    partial[row[row >= 0]] = True
    # When the iteration after such a step began on the GPU is not known either.
    partial[1:] |= partial[:-1].copy()
    if trace.damage.cut and not windows.whole:
        partial |= windows.end > _recorded_until(joined, windows.pid)
    said = []
    if len(lost):
        said.append(
            f"{len(lost):,} launch calls have no device work in the trace: it was lost, or they "
            "were captured into a graph"
        )
    left = windows.used[~partial[windows.used]]
    if not len(left) and trace.damage.cut:
        raise InputError(
            "no step of the trace is whole",
            hint="--step-from none reports on all that is there",
        )
    if not len(left):
        return replace(steps, notes=(*steps.notes, *said))
    if len(left) < len(windows.used):
        said.append(
            f"{len(windows.used) - len(left):,} of {len(windows.used):,} steps left out, of which "
            "not everything is in the trace"
        )
    return replace(steps, iterations=replace(windows, used=left), notes=(*steps.notes, *said))


def _lost(trace: Trace, joined: Launches) -> Bools:
    """Of each call, whether it launches by its name and reached nothing."""
    calls = trace.calls
    names = calls[c.NAME].cat
    sure = names.categories.astype(str).str.contains(_SURE, regex=True)
    lost: Bools = np.append(np.asarray(sure, np.bool_), False)[names.codes.to_numpy()]
    pid, launching = ints(calls, c.PID), ints(joined.calls, c.PID)
    for process in np.unique(launching):
        mine = np.flatnonzero(lost & (pid == process))
        found = ints(joined.calls, c.CORRELATION)[launching == process]
        lost[mine] = ~np.isin(ints(calls, c.CORRELATION)[mine], found)
    # Of a process without any launch it is not known why.
    return lost & np.isin(pid, launching)


def _recorded_until(joined: Launches, pid: int | None) -> int:
    """The last launch of the thread whose launches end first, of those that made many."""
    calls = joined.calls[joined.calls[c.PID] == pid]
    threads, often = np.unique(ints(calls, c.TID), return_counts=True)
    many = threads[often >= _THREAD_SHARE * len(calls)]
    start, tid = ints(calls, c.START), ints(calls, c.TID)
    last: list[int] = [int(start[tid == thread].max()) for thread in many]
    return min(last, default=0)
