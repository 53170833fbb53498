"""What a replay takes when the streams of a step run side by side.

Kernels start in the order of their streams and of the waits between streams. While the blocks of
all running kernels do not fit on the device together, all slow down in proportion. Where they fit,
each takes `SIDE_BY_SIDE` times as long as alone, because they share caches, memory and schedulers.
The same rule, applied backwards, first removes eager's own overlap from the eager durations.

A trace does not show which event a stream waits for, so the order of the host's calls decides: two
or more waits in a row are a fork or a join of all streams. A single wait holds the next launch's
stream at most until the newest launch on another stream that has an event behind it. The estimate
is the mean of the times with and without single waits.

`SIDE_BY_SIDE` is from graphs with known dependencies (`cudaGraphDebugDotPrint` of four LSTMs of
two and three layers, one bidirectional; chains of matrix products on two and four streams; H200):
1.4 to 1.6 brings each to its measured replay.
"""

from __future__ import annotations

import re
from heapq import heappop, heappush
from itertools import chain

import numpy as np

from launchscope.analysis.timeline.work import Work
from launchscope.frozen import dataclass
from launchscope.parser import columns as c
from launchscope.parser.occupancy import WHOLE
from launchscope.parser.trace import Floats, Ints, ints, unique, where

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


def side_by_side_ns(work: Work, node_ns: Floats) -> Floats:
    """GPU time of a replay of each used step, in ns. `node_ns` is what each row of
    `work.activities` costs as a node of a graph, in addition to its own duration.

    NaN for a step of one stream or of unknown order: its trace lacks waits between streams, the
    size of a kernel or a launch, or it launched graphs itself.
    """
    found = np.full(len(work.iterations.used), np.nan)
    if len(unique(work.activities[c.STREAM])) < 2:
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
            followers, place, single = _order(nodes, strict=True)
            times = [_simulated(nodes, own, followers, place)]
            if single:
                times.append(_simulated(nodes, own, *_order(nodes, strict=False)[:2]))
            found[row] = np.mean(times)
    return found


def _calls(work: Work, pattern: str) -> Ints:
    """When the process of the steps made the calls whose names match."""
    calls = work.trace.calls
    named = calls[where(calls[c.NAME], re.compile(pattern).match)]
    return ints(work.iterations.of_process(named), c.START)


def _nodes(work: Work, rows: Ints, records: Ints, waits: Ints) -> _Nodes | None:
    activities = work.activities
    launch, stream = ints(activities, c.LAUNCH)[rows], ints(activities, c.STREAM)[rows]
    if len(unique(stream)) < 2 or launch[0] < 0 or (np.diff(launch) == 0).any():
        return None
    kernel = (activities[c.KIND] == c.KERNEL)[rows]
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


def _alone(nodes: _Nodes) -> Floats:
    """What each node takes in ns when nothing runs beside it."""
    time = np.concatenate((nodes.start, nodes.end))
    order = np.argsort(time, kind="stable")
    share = np.cumsum(np.concatenate((nodes.share, -nodes.share))[order])
    kernels = np.cumsum(np.concatenate((nodes.kernel, -nodes.kernel))[order])
    slowdown = np.maximum(share, np.where(kernels > 1, SIDE_BY_SIDE, 1.0))
    passed = np.diff(time[order]) / slowdown[:-1]
    progress = np.empty(len(time))
    progress[order] = np.append(0.0, np.cumsum(passed))
    done: Floats = progress[len(nodes.start) :] - progress[: len(nodes.start)]
    return done


def _order(nodes: _Nodes, strict: bool) -> tuple[list[list[int]], list[int], bool]:
    """The nodes that wait for each node; the node of each launch; and whether single waits make a
    difference.

    With `strict` single waits count. Joins are nodes without a launch.
    """
    single = False
    followers: list[list[int]] = []
    place: list[int] = []
    latest: dict[int, int] = {}  # node by stream, since the last join
    join = -1
    newest, other = (-1, -1), (-1, -1)  # stream and node recorded, of two different streams
    for stream, waits, recorded in zip(nodes.stream, nodes.waits, nodes.recorded):
        node = len(followers)
        followers.append([])
        if waits > 1:
            for source in latest.values() if join < 0 else (join, *latest.values()):
                followers[source].append(node)
            join, latest = node, {}
            node += 1
            followers.append([])
        source = latest.get(stream, join)
        if source >= 0:
            followers[source].append(node)
        source = (newest if newest[0] != stream else other)[1]
        if waits == 1 and strict and source >= 0:
            followers[source].append(node)
            single = True
        latest[stream] = node
        place.append(node)
        if recorded:
            if newest[0] != stream:
                other = newest
            newest = (stream, node)
    return followers, place, single


def _simulated(
    nodes: _Nodes, work_ns: Floats, followers: list[list[int]], place: list[int]
) -> float:
    """When the last node ends. All nodes that run progress at the same rate: a heap holds the
    progress at which each ends."""
    count = len(followers)
    of_nodes = np.zeros((3, count))
    of_nodes[:, place] = work_ns, nodes.share, nodes.kernel
    work, share, kernel = of_nodes.tolist()
    missing = [0] * count
    for later in chain.from_iterable(followers):
        missing[later] += 1
    ready = [node for node in range(count) if not missing[node]]
    ends: list[tuple[float, int]] = []
    progress = time = load = running = 0.0
    while ready or ends:
        for node in ready:
            heappush(ends, (progress + work[node], node))
            load += share[node]
            running += kernel[node]
        reached, node = heappop(ends)
        slowdown = SIDE_BY_SIDE if running > 1 else 1.0
        time += (reached - progress) * (load if load > slowdown else slowdown)
        progress = reached
        load -= share[node]
        running -= kernel[node]
        ready = followers[node]
        for later in ready:
            missing[later] -= 1
            if missing[later]:  # rare: it waits for others, too
                ready = [each for each in ready if each != later]
    return time
