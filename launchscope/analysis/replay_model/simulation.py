"""A queue of launches between one host and one GPU stream, simulated.

    host_i = host_(i-1) + gap_i
    gpu_i  = max(host_i + latency, end_(i-1) + dispatch),   end_i = gpu_i + work_i

A launch call waits while `queue_limit` launches are unfinished; a synchronisation waits until
the GPU is through. Times are nanoseconds as floats.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from launchscope.analysis.timeline.accounting import QUEUE_LIMIT
from launchscope.parser.trace import Bools, Floats, Ints

LAUNCH, SYNC, BEGIN, END = 0, 1, 2, 3  # BEGIN and END: the event records around a step


@dataclass(frozen=True)
class Costs:
    """What the machine adds to the loop's own times."""

    latency_ns: float = 4000.0  # from a launch call to the start of its kernel on an idle GPU
    dispatch_ns: float = 800.0  # from one kernel's end to the next one's start, if it is queued
    wake_ns: float = 6000.0  # from the GPU being through to the return of a synchronisation
    queue_limit: int = QUEUE_LIMIT


@dataclass(frozen=True)
class Loop:
    """The events of one or more iterations in host order, ending with an END.

    `gap_ns` is the host's own time from the event before to this one, waits taken out;
    `work_ns` the GPU time that a launch brings; `waits` marks launches that also wait.
    """

    kind: Ints
    gap_ns: Floats
    work_ns: Floats
    waits: Bools
    in_step: Bools
    behind_backward: Bools  # what a graph of forward and backward leaves eager
    upload: Bools  # copies from the host to the device

    @property
    def iterations(self) -> int:
        return int((self.kind == END).sum())

    def chosen(self, rows: Bools | Ints) -> Loop:
        """The loop with only these events, or these in this order."""
        return Loop(
            self.kind[rows], self.gap_ns[rows], self.work_ns[rows], self.waits[rows],
            self.in_step[rows], self.behind_backward[rows], self.upload[rows],
        )  # fmt: skip

    def scaled(self, step: float, between: float) -> Loop:
        """The loop with the host's own time stretched, inside steps and between them."""
        return replace(self, gap_ns=self.gap_ns * np.where(self.in_step, step, between))

    def without_waits(self) -> Loop:
        """The same host work and launches with nothing that waits for the GPU."""
        return replace(self, waits=np.zeros_like(self.waits)).without(self.kind == SYNC)

    def without(self, rows: Bools) -> Loop:
        """The loop less these events; the host's time up to one goes to the one that follows."""
        elapsed = np.cumsum(self.gap_ns)[~rows]
        return replace(self.chosen(~rows), gap_ns=np.diff(elapsed, prepend=0.0))


@dataclass(frozen=True)
class Run:
    """Milliseconds per simulated iteration, as the timing pass would have measured them."""

    iteration: Floats  # between step ends on the GPU's clock
    step: Floats
    host: Floats
    host_between: Floats
    host_iteration: Floats


def simulate(loop: Loop, iterations: int, costs: Costs = Costs()) -> Run:
    """`iterations` of the loop in turn, from an idle machine.

    Without waits, and while the queue does not fill, the recurrence has a closed form (a
    running maximum); otherwise the events are gone through one by one.
    """
    repeats = -(-iterations // max(loop.iterations, 1))
    unrolled = loop.chosen(np.tile(np.arange(len(loop.kind)), repeats))
    quick = None if unrolled.waits.any() or (loop.kind == SYNC).any() else _closed(unrolled, costs)
    host, gpu = quick if quick is not None else simulate_plainly(unrolled, costs)
    return _measured(unrolled, host, gpu, iterations)


def simulate_plainly(loop: Loop, costs: Costs) -> tuple[Floats, Floats]:
    """Host time and GPU time of every event: of a launch its end, of a mark its passing."""
    host_at = np.empty(len(loop.kind))
    gpu_at = np.empty(len(loop.kind))
    ends: list[float] = []
    host, free = 0.0, -costs.dispatch_ns
    limit, latency, dispatch, wake = (
        costs.queue_limit, costs.latency_ns, costs.dispatch_ns, costs.wake_ns,
    )  # fmt: skip
    rows = zip(loop.kind.tolist(), loop.gap_ns.tolist(), loop.work_ns.tolist(), loop.waits.tolist())
    for row, (kind, gap, work, waits) in enumerate(rows):
        host += gap
        if kind == LAUNCH:
            if len(ends) >= limit and ends[-limit] > host:
                host = ends[-limit]
            free = max(host + latency, free + dispatch) + work
            ends.append(free)
            gpu_at[row] = free
        else:
            gpu_at[row] = max(host + latency, free)
        if (waits or kind == SYNC) and free > host:
            host = free + wake
        host_at[row] = host
    return host_at, gpu_at


def _closed(loop: Loop, costs: Costs) -> tuple[Floats, Floats] | None:
    """The same for a loop that never waits; None when the queue would have filled."""
    host = np.cumsum(loop.gap_ns)
    launch = np.flatnonzero(loop.kind == LAUNCH)
    work = loop.work_ns[launch]
    through = np.cumsum(work + costs.dispatch_ns)
    ready = host[launch] + costs.latency_ns + work
    ends = through + np.maximum.accumulate(ready - through) if len(launch) else ready
    limit = costs.queue_limit
    if len(ends) > limit and (ends[:-limit] > host[launch][limit:]).any():
        return None
    before = np.cumsum(loop.kind == LAUNCH)
    free = np.concatenate(([-np.inf], ends))[before]
    marks = np.maximum(host + costs.latency_ns, free)
    return host, np.where(loop.kind == LAUNCH, free, marks)


def _measured(loop: Loop, host: Floats, gpu: Floats, iterations: int) -> Run:
    begin = np.flatnonzero(loop.kind == BEGIN)[:iterations]
    end = np.flatnonzero(loop.kind == END)[:iterations]
    return Run(
        iteration=np.diff(gpu[end]) / 1e6,
        step=(gpu[end] - gpu[begin]) / 1e6,
        host=(host[end] - host[begin]) / 1e6,
        host_between=(host[begin[1:]] - host[end[:-1]]) / 1e6,
        host_iteration=np.diff(host[end]) / 1e6,
    )
