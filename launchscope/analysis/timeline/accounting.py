"""What the host spent on launching: counts, call times, back-pressure, queue delay."""

from __future__ import annotations

from functools import partial

import numpy as np
from msgspec import Struct

from launchscope.analysis.timeline.intervals import median_by_group
from launchscope.analysis.timeline.work import Work
from launchscope.parser import columns as c
from launchscope.parser.trace import (
    Bools,
    Floats,
    Ints,
    Table,
    ints,
    median_of,
    quantile_of,
    unique,
)

# Launches that fit in the queue before a launch call blocks (H200, CUDA 13.0: about 1,000).
QUEUE_LIMIT = 1000
# A call counts as possibly blocked from this many unfinished launches on.
_DEEP = QUEUE_LIMIT // 2


class Accounting(Struct, frozen=True):
    """Per used step of the trace; `counts` and `times` by metric."""

    counts: dict[str, Floats]
    times: dict[str, Floats]
    syncs_between: Floats


def account(work: Work, profiler_us_per_launch: float = 0.0) -> Accounting:
    """Launch accounting of every used step.

    At most half of the median unblocked call is subtracted for the profiler: the calibrated
    `profiler_us_per_launch` can be several times too high if it was cold.
    """
    launches, kind = work.launches, work.launches[c.KIND]
    duration = ints(launches, c.DUR)
    excess = blocked_ns(launches)
    asynchronous = ~launches[c.BLOCKING]
    unblocked = duration[(excess == 0) & asynchronous]
    cost = profiler_us_per_launch * 1000
    if len(unblocked):
        cost = min(cost, 0.5 * median_of(unblocked))

    counted = partial(work.iterations.summed, work.step)
    api = np.maximum(duration - np.where(excess > 0, 0.0, cost), 0.0)
    waits = ints(work.syncs[work.syncs[c.COUNTED]], c.START)
    row, step = work.iterations.of(waits), work.iterations.step_of(waits)
    delay, waiting = _queue(work, (kind == c.KERNEL) | (kind == c.GRAPH))
    return Accounting(
        counts={
            "launches_per_step": counted(kind == c.KERNEL),
            "memcpys_per_step": counted(kind == c.MEMCPY),
            "memsets_per_step": counted(kind == c.MEMSET),
            "graph_launches_per_step": counted(kind == c.GRAPH),
            "kernels_per_step": counted(ints(launches, c.KERNELS)),
            "syncs_per_step": work.iterations.summed(step),
        },
        times={
            "launch_api_ms": counted(api * asynchronous) / 1e6,
            "launch_api_raw_ms": counted(duration * asynchronous) / 1e6,
            "blocked_launch_ms": counted(excess * asynchronous) / 1e6,
            "queue_delay_us": delay,
            "tklqt_ms": waiting,
        },
        syncs_between=work.iterations.summed(np.where(step < 0, row, -1)),
    )


def blocked_ns(launches: Table) -> Ints:
    """Excess of each launch call over its API's unblocked median while the queue was deep: many
    launches made before the call had not finished when it began. An API with too few calls on a
    shallow queue has the lower quartile of all its calls in place of that median."""
    start, duration = ints(launches, c.START), ints(launches, c.DUR)
    depth = np.arange(len(start)) - np.searchsorted(np.sort(ints(launches, c.LAST)), start, "right")
    deep = (depth >= _DEEP) & ~launches[c.BLOCKING]
    if not deep.any():
        return np.zeros(len(start), np.int64)
    name, usual = launches[c.NAME].codes, np.zeros(len(start))
    for code in unique(name[deep]):  # a handful
        mine, shallow = name == code, (name == code) & ~deep
        enough = shallow.sum() >= 5
        usual[mine] = median_of(duration[shallow]) if enough else quantile_of(duration[mine], 0.25)
    return np.where(deep, np.maximum(duration - usual, 0), 0).astype(np.int64)


def _queue(work: Work, chosen: Bools) -> tuple[Floats, Floats]:
    """Median launch-end to kernel-start in us, and summed launch-start to kernel-start in ms."""
    launches = work.launches
    rows = chosen & np.isin(work.step, work.iterations.used)
    first, start, end = (ints(launches, column)[rows] for column in (c.FIRST, c.START, c.END))
    step = np.unique(work.step[rows], return_inverse=True)[1]
    count = int(step.max(initial=-1)) + 1
    delay = median_by_group((first - end) / 1e3, step, count)
    return delay, np.bincount(step, first - start, count) / 1e6
