"""What the analysis found in a trace, as intervals on its clock, for every iteration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from launchscope.analysis.timeline.accounting import blocked_ns
from launchscope.analysis.timeline.communication import find_collectives
from launchscope.analysis.timeline.timeline import CAUSES, idle_gaps, iteration_spans
from launchscope.analysis.timeline.work import Work
from launchscope.frozen import dataclass
from launchscope.parser import columns as c
from launchscope.parser.trace import Bools, Ints, Texts, Trace, ints, unique

SpanKind = Literal["iteration", "step", "gpu", "idle", "exposed", "blocked"]


@dataclass(frozen=True, eq=False)
class Spans:
    """Disjoint intervals of one kind, and the row of the iteration of each; -1 for none.

    - iteration and step: on the host;
    - gpu: an iteration from the end of the one before;
    - idle: `names` are its causes. A gap with several is one interval for each of them, side by
      side: when each of them happened is not known;
    - exposed: collectives, by `names`, that no other kernel hides;
    - blocked: launch calls of a `thread`, for as long as a full queue held them up.
    """

    kind: SpanKind
    start: Ints
    end: Ints
    iteration: Ints
    names: Texts | None = None
    thread: int | None = None


@dataclass(frozen=True, eq=False)
class Annotations:
    """Of one process (None: not known) and one device of a trace. Iterations that are not `used`
    are in no figure. The queue has `depth[i]` from `depth_times[i]` on."""

    trace: Trace
    process: int | None
    device: int
    used: Bools
    lanes: tuple[Spans, ...]
    depth_times: Ints
    depth: Ints


def annotate(work: Work, pauses: bool = False) -> Annotations:
    """All iterations of the trace; `pauses` is that of `build_timeline`."""
    trace, windows = work.trace, work.iterations
    return Annotations(
        trace,
        windows.pid,
        int(work.activities[c.DEVICE][0]),
        np.isin(np.arange(len(windows)), windows.used),
        tuple(lane for lane in _lanes(work, pauses) if len(lane.start)),
        *_depth_changes(work),
    )


def _lanes(work: Work, pauses: bool) -> Iterator[Spans]:
    windows, launches, rows = work.iterations, work.launches, np.arange(len(work.iterations))
    yield Spans("iteration", windows.begin, windows.end, rows)
    yield Spans("step", windows.step_begin, windows.end, rows)
    begin, end = iteration_spans(work)
    known = end > begin
    yield Spans("gpu", begin[known], end[known], rows[known])
    gaps = next(idle_gaps(work, pauses))
    begin, end, cause, gap = gaps.by_cause(np.flatnonzero(gaps.group >= 0))
    yield Spans("idle", begin, end, gaps.group[gap], Texts(cause, CAUSES))
    found = find_collectives(work)
    span = found.exposed_span
    names = work.activities[c.NAME][found.activity[span]]
    begin, end = found.exposed_start, found.exposed_end
    yield Spans("exposed", begin, end, found.iteration[span], names)
    excess = np.where(launches[c.BLOCKING] | (work.step < 0), 0, blocked_ns(launches))
    end, thread = ints(launches, c.END), ints(launches, c.TID)
    for number in unique(thread[excess > 0]).tolist():
        mine = (excess > 0) & (thread == number)
        begin = (end - excess)[mine]
        yield Spans("blocked", begin, end[mine], work.iteration[mine], thread=number)


def _depth_changes(work: Work) -> tuple[Ints, Ints]:
    """When the depth of the queue (launched and not finished) changes, and what it is then."""
    launch = ints(work.activities, c.LAUNCH)
    finished = ints(work.activities, c.END)[launch >= 0]
    # The clocks of host and GPU may disagree.
    launched = np.minimum(ints(work.launches, c.START)[launch[launch >= 0]], finished)
    times = unique(np.append(launched, finished))
    depth = np.searchsorted(np.sort(launched), times, "right")
    depth -= np.searchsorted(np.sort(finished), times, "right")
    changed = np.diff(depth, prepend=0) != 0
    return times[changed], depth[changed]
