"""What the host spent on launching: counts, call times, back-pressure, queue delay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from launchscope.analysis.timeline.work import Work
from launchscope.parser import columns as c
from launchscope.parser.trace import Bools, Floats, Ints, ints

# Launches that fit in the queue before a launch call blocks (H200, CUDA 13.0: about 1,000).
QUEUE_LIMIT = 1000
# A call counts as possibly blocked from this many unfinished launches on.
_DEEP = QUEUE_LIMIT // 2


@dataclass(frozen=True)
class Accounting:
    """Per used step of the trace. Counts are of calls, except `kernels`."""

    launches: Ints  # calls that reach a kernel, graph launches excluded
    memcpys: Ints
    memsets: Ints
    graph_launches: Ints
    kernels: Ints
    operations: Ints  # kernels, copies and sets on the device
    syncs_inside: Ints
    syncs_between: Ints
    sync_names: tuple[str, ...]  # of one iteration, in order
    api_raw_ms: Floats
    api_ms: Floats
    blocked_ms: Floats
    queue_delay_us: Floats
    tklqt_ms: Floats
    profiler_us: float  # what was taken off each unblocked call


def account(work: Work, profiler_us_per_launch: float = 0.0) -> Accounting:
    """Launch accounting of every used step.

    `profiler_us_per_launch` is the profiler's cost from the calibration. At most half of the
    median unblocked call is taken off: a call cannot be made of the profiler alone, and a cold
    calibration can come out several times too high.
    """
    launches = work.launches
    kind = launches[c.KIND].to_numpy(object)
    count = len(work.iterations)
    used = work.iterations.used
    step = work.step
    duration = ints(launches, c.DUR)
    excess = blocked_ns(launches)
    asynchronous = ~launches[c.BLOCKING].to_numpy(bool)
    unblocked = duration[(excess == 0) & asynchronous]
    cost = profiler_us_per_launch * 1000
    if len(unblocked):
        cost = min(cost, 0.5 * float(np.median(unblocked)))

    def tally(chosen: Bools, amount: Floats | Ints | None = None) -> Floats:
        chosen = chosen & (step >= 0)
        weights = None if amount is None else amount[chosen]
        return np.bincount(step[chosen], weights, minlength=count)[used].astype(np.float64)

    def number(chosen: Bools) -> Ints:
        return tally(chosen).astype(np.int64)

    api = np.maximum(duration - np.where(excess > 0, 0.0, cost), 0.0)
    inside, between, names = _syncs(work)
    starts = np.isin(kind, (c.KERNEL, c.GRAPH))
    delay, waiting = _queue(work, starts)
    on_device = work.activity_step
    return Accounting(
        launches=number(kind == c.KERNEL),
        memcpys=number(kind == c.MEMCPY),
        memsets=number(kind == c.MEMSET),
        graph_launches=number(kind == c.GRAPH),
        kernels=tally(np.ones(len(kind), bool), ints(launches, c.KERNELS)).astype(np.int64),
        operations=np.bincount(on_device[on_device >= 0], minlength=count)[used],
        syncs_inside=inside,
        syncs_between=between,
        sync_names=names,
        api_raw_ms=tally(asynchronous, duration) / 1e6,
        api_ms=tally(asynchronous, api) / 1e6,
        blocked_ms=tally(asynchronous, excess) / 1e6,
        queue_delay_us=delay,
        tklqt_ms=waiting,
        profiler_us=cost / 1000,
    )


def blocked_ns(launches: pd.DataFrame) -> Ints:
    """Excess of each launch call over its API's unblocked median while the queue was deep.

    The queue's depth is the number of launches made before the call that had not finished when
    it began. With too few calls on a shallow queue to tell an API's own time, the lower
    quartile of all its calls stands for it.
    """
    start, duration = ints(launches, c.START), ints(launches, c.DUR)
    depth = np.arange(len(start)) - np.searchsorted(np.sort(ints(launches, c.LAST)), start, "right")
    deep = (depth >= _DEEP) & ~launches[c.BLOCKING].to_numpy(bool)
    if not deep.any():
        return np.zeros(len(start), np.int64)
    table = pd.DataFrame({"name": launches[c.NAME].to_numpy(object), "dur": duration})
    shallow = table[~deep].groupby("name", observed=True)["dur"].agg(["median", "size"])
    own = shallow["median"].where(shallow["size"] >= 5)
    quartile = table.groupby("name", observed=True)["dur"].quantile(0.25)
    usual = table["name"].map(own).fillna(table["name"].map(quartile)).to_numpy(np.float64)
    return np.where(deep, np.maximum(duration - usual, 0), 0).astype(np.int64)


def _syncs(work: Work) -> tuple[Ints, Ints, tuple[str, ...]]:
    counted = work.syncs[work.syncs[c.COUNTED]]
    start = ints(counted, c.START)
    row, step = work.iterations.of(start), work.iterations.step_of(start)
    count, used = len(work.iterations), work.iterations.used
    inside = np.bincount(step[step >= 0], minlength=count)[used]
    between = np.bincount(row[(row >= 0) & (step < 0)], minlength=count)[used]
    names = counted.loc[row == used[-1], c.NAME] if len(used) else counted[c.NAME][:0]
    return inside, between, tuple(map(str, names))


def _queue(work: Work, chosen: Bools) -> tuple[Floats, Floats]:
    """Median launch-end to kernel-start in us, and summed launch-start to kernel-start in ms."""
    launches = work.launches
    rows = chosen & np.isin(work.step, work.iterations.used)
    table = pd.DataFrame(
        {
            "step": work.step[rows],
            "delay": (ints(launches, c.FIRST) - ints(launches, c.END))[rows] / 1e3,
            "wait": (ints(launches, c.FIRST) - ints(launches, c.START))[rows] / 1e6,
        }
    )
    grouped = table.groupby("step")
    delay, waiting = grouped["delay"].median(), grouped["wait"].sum()
    return delay.to_numpy(np.float64), waiting.to_numpy(np.float64)
