"""What a replay takes when the streams of a step run side by side.

Kernels are put on the GPU in the order of their streams and of the waits between these. While
the blocks of those that run do not fit on the device together, all slow down in proportion; of
several that do fit each takes `SIDE_BY_SIDE` times as long as alone, for the caches, the memory
and the schedulers that they share. The same rule, read backwards, first takes out of the eager
durations what eager's own overlap had added.

A trace tells that events were recorded and waited for, not which event, nor on which stream.
So, by the order of the host's calls:

- two or more waits in a row are a fork or a join of all streams;
- a single wait holds the stream that is launched on next. At most it lasts until the newest
  launch behind which an event was recorded on another stream; of a pipeline over layers it was
  an older one. The estimate is the middle of the times with and without that wait.

`SIDE_BY_SIDE` is from graphs whose dependencies were known (`cudaGraphDebugDotPrint` of four
LSTMs of two and three layers, one of them in both directions; chains of matrix products on two
and four streams; H200): 1.4 to 1.6 brings each to its measured replay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from launchscope.analysis.timeline.work import Work
from launchscope.parser import columns as c
from launchscope.parser.occupancy import WHOLE
from launchscope.parser.trace import Bools, Floats, Ints, ints

SIDE_BY_SIDE = 1.5

_RECORD = r"^(?:cu(?:da)?|hip)EventRecord"
_WAIT = r"^(?:cu(?:da)?|hip)StreamWaitEvent"


@dataclass(frozen=True)
class _Nodes:
    """One step's device work, in the order of its launches."""

    start: Ints
    end: Ints
    stream: list[int]
    share: Floats  # of the device, 0 for copies and sets
    kernel: Ints  # 1 or 0
    waits: list[int]  # calls to wait for an event since the launch before
    recorded: list[bool]  # an event was recorded behind it, before the next launch


@dataclass
class _Order:
    """Which nodes follow which. Joins are nodes without work, behind those of the step."""

    after: list[list[int]]
    before: list[int] = field(default_factory=list)  # how many each node waits for

    def put(self, sources: list[int]) -> int:
        """Adds the next node, after these."""
        node = len(self.before)
        self.before.append(len(sources))
        self.after.append([])
        for source in sources:
            self.after[source].append(node)
        return node


def side_by_side_ns(work: Work, node_ns: Floats) -> Floats:
    """GPU time of a replay of each used step, in ns. `node_ns` is what each row of
    `work.activities` costs as a node of a graph, beside its own duration.

    NaN for a step of one stream, and for one whose order cannot be told: its trace lacks the
    waits between streams, the size of a kernel or a launch, or it launched graphs itself.
    """
    found = np.full(len(work.iterations.used), np.nan)
    if work.activities[c.STREAM].nunique() < 2:
        return found
    records, waits = _calls(work, _RECORD), _calls(work, _WAIT)
    if not len(waits):
        return found
    launch = ints(work.activities, c.LAUNCH)
    order = np.lexsort((launch, work.activity_step))
    edges = np.searchsorted(
        work.activity_step[order], [work.iterations.used, work.iterations.used + 1]
    )
    for row, (first, last) in enumerate(edges.T.tolist()):
        mine = order[first:last]
        nodes = _nodes(work, mine, records, waits)
        if nodes is not None:
            own = _alone(nodes) + node_ns[mine]
            found[row] = np.mean([_simulated(nodes, own, strict) for strict in (True, False)])
    return found


def _calls(work: Work, pattern: str) -> Ints:
    """When the calls of this name were made, by the process of the steps."""
    calls = work.trace.calls
    named = calls[c.NAME].cat.categories.to_series().astype(str).str.match(pattern).to_numpy(bool)
    wanted: Bools = np.append(named, False)[calls[c.NAME].cat.codes]
    if work.iterations.pid is not None:
        wanted &= (calls[c.PID] == work.iterations.pid).to_numpy(bool)
    return ints(calls, c.START)[wanted]


def _nodes(work: Work, rows: Ints, records: Ints, waits: Ints) -> _Nodes | None:
    activities = work.activities
    launch, stream = ints(activities, c.LAUNCH)[rows], ints(activities, c.STREAM)[rows]
    if len(np.unique(stream)) < 2 or launch[0] < 0 or (np.diff(launch) == 0).any():
        return None
    kernel = (activities[c.KIND] == c.KERNEL).to_numpy(bool)[rows]
    share = np.where(kernel, ints(activities, c.SHARE)[rows], 0)
    called = ints(work.launches, c.START)[launch]
    # Of a mark: how many launches come before it. Before the first lies another step's.
    waited = np.searchsorted(called, waits)
    recorded = np.searchsorted(called, records)
    count = len(rows)
    waited, recorded = waited[(waited > 0) & (waited < count)], recorded[recorded > 0]
    if (share < 0).any() or not len(waited):
        return None
    return _Nodes(
        start=ints(activities, c.START)[rows],
        end=ints(activities, c.END)[rows],
        stream=stream.tolist(),
        share=share / WHOLE,
        kernel=kernel.astype(np.int64),
        waits=np.bincount(waited, minlength=count).tolist(),
        recorded=(np.bincount(recorded - 1, minlength=count) > 0).tolist(),
    )


def _slowdown(share: Floats, kernels: Ints) -> Floats:
    """How many times longer than alone kernels take whose shares and number add up to these."""
    return np.maximum(share, np.where(kernels > 1, SIDE_BY_SIDE, 1.0))


def _alone(nodes: _Nodes) -> Floats:
    """What each would have taken had nothing run beside it, in ns."""
    time = np.concatenate((nodes.start, nodes.end))
    order = np.argsort(time, kind="stable")
    share = np.cumsum(np.concatenate((nodes.share, -nodes.share))[order])
    kernels = np.cumsum(np.concatenate((nodes.kernel, -nodes.kernel))[order])
    passed = np.diff(time[order]) / _slowdown(share, kernels)[:-1]
    progress = np.empty(len(time))
    progress[order] = np.append(0.0, np.cumsum(passed))
    done: Floats = progress[len(nodes.start) :] - progress[: len(nodes.start)]
    return done


def _order(nodes: _Nodes, strict: bool) -> tuple[_Order, list[int]]:
    """What waits for what, and the node of each launch; with `strict` single waits count."""
    order = _Order([])
    place: list[int] = []
    latest: dict[int, int] = {}  # node by stream, since the last join
    join: list[int] = []
    newest, other = (-1, -1), (-1, -1)  # stream and node recorded, of two different streams
    for stream, waits, recorded in zip(nodes.stream, nodes.waits, nodes.recorded):
        if waits > 1:
            join = [order.put([*join, *latest.values()])]
            latest = {}
        sources = [latest[stream]] if stream in latest else list(join)
        if waits == 1 and strict:
            node = (newest if newest[0] != stream else other)[1]
            if node >= 0:
                sources.append(node)
        node = order.put(sources)
        place.append(node)
        latest[stream] = node
        if recorded:
            if newest[0] != stream:
                other = newest
            newest = (stream, node)
    return order, place


def _simulated(nodes: _Nodes, work_ns: Floats, strict: bool) -> float:
    """When the last node is through. Progress runs alike for all that are on the device, so
    that a heap of what each has reached when it is done is all that is needed."""
    order, place = _order(nodes, strict)
    count = len(order.before)
    work, share, kernel = [0.0] * count, [0.0] * count, [0] * count
    for node, *of in zip(place, work_ns.tolist(), nodes.share.tolist(), nodes.kernel.tolist()):
        work[node], share[node], kernel[node] = of
    missing = order.before
    ready = [node for node in range(count) if not missing[node]]
    through: list[tuple[float, int]] = []
    progress = time = load = 0.0
    running = 0
    while ready or through:
        for node in ready:
            heappush(through, (progress + work[node], node))
            load += share[node]
            running += kernel[node]
        reached, node = heappop(through)
        slowdown = max(load, SIDE_BY_SIDE if running > 1 else 1.0)
        time += (reached - progress) * slowdown
        progress = reached
        load -= share[node]
        running -= kernel[node]
        ready = []
        for later in order.after[node]:
            missing[later] -= 1
            if not missing[later]:
                ready.append(later)
    return time
