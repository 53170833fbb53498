"""How much launched work is waiting or running at each moment of a step."""

from __future__ import annotations

import numpy as np

from launchscope.analysis.timeline.timeline import Timeline
from launchscope.analysis.timeline.work import Work
from launchscope.model import QueueDepth
from launchscope.parser import columns as c
from launchscope.parser.trace import Bools, Floats, Ints, ints, median_of, unique

_PARTS = 400


def queue_depth(work: Work, timeline: Timeline) -> QueueDepth | None:
    """The depth over a typical step: the used one whose iteration is nearest to the median on the
    GPU. None where no used step launched anything that ended after it began."""
    launched, finished, joined = _queued(work)
    step, used = work.activity_step[joined], work.iterations.used
    candidates = np.isin(used, step)
    if not candidates.any():
        return None
    times = timeline.traced_iteration[candidates]
    typical = used[candidates][np.argmin(np.abs(times - median_of(times)))]
    begin = int(work.iterations.step_begin[typical])
    end = int(finished[step == typical].max())
    if end <= begin:
        return None
    there = (finished > begin) & (launched < end)
    on = np.sort(launched[there].clip(begin) - begin)
    off = np.sort(finished[there] - begin)
    edges = np.linspace(0, end - begin, _PARTS + 1)
    waited = _elapsed(on, edges) - _elapsed(off, edges)
    # What finishes at the moment of a launch is not there any more.
    depth = np.arange(1, len(on) + 1) - np.searchsorted(off, on, "right")
    return QueueDepth(
        ms=(end - begin) / 1e6,
        depth=tuple((np.diff(waited) / np.diff(edges)).clip(0).round(3).tolist()),
        maximum=int(depth.max(initial=0)),
        mean=float(waited[-1] - waited[0]) / (end - begin),
    )


def depth_changes(work: Work) -> tuple[Ints, Ints]:
    """When the depth of the queue changes over the whole trace, and what it is from then on."""
    launched, finished, _ = _queued(work)
    times = unique(np.append(launched, finished))
    depth = np.searchsorted(np.sort(launched), times, "right")
    depth -= np.searchsorted(np.sort(finished), times, "right")
    changed = np.diff(depth, prepend=0) != 0
    return times[changed], depth[changed]


def _queued(work: Work) -> tuple[Ints, Ints, Bools]:
    """When each activity was launched and finished, and which ones have a known launch."""
    launch = ints(work.activities, c.LAUNCH)
    joined = launch >= 0
    finished = ints(work.activities, c.END)[joined]
    # The clocks of host and GPU may disagree.
    launched = np.minimum(ints(work.launches, c.START)[launch[joined]], finished)
    return launched, finished, joined


def _elapsed(times: Ints, until: Floats) -> Floats:
    """At each moment the time since all earlier ones of these sorted times, summed."""
    count = np.searchsorted(times, until, "right")
    begun: Floats = np.append(0.0, np.cumsum(times, dtype=np.float64))[count]
    return count * until - begun
