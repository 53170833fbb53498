"""The loop of a script: a queue of launches between one host and one GPU stream, simulated.

    host_i = host_(i-1) + gap_i
    gpu_i  = max(host_i + latency, end_(i-1) + dispatch),   end_i = gpu_i + work_i

A launch call waits while `queue_limit` launches are unfinished; a synchronization waits until
the GPU has finished. Times are nanoseconds as floats. A `Model` is the loop of a trace, fitted to
the untraced times, and simulates it with its step replayed.
"""

from __future__ import annotations

from dataclasses import astuple, fields, replace

import numpy as np

from launchscope.analysis.timeline.accounting import QUEUE_LIMIT, blocked_ns
from launchscope.analysis.timeline.timeline import (
    kept_host_ns,
    stalled_ns,
    staying,
    unusual_limits,
)
from launchscope.analysis.timeline.work import Work
from launchscope.analysis.timing import StepTimes
from launchscope.frozen import dataclass
from launchscope.parser import columns as c
from launchscope.parser.trace import Bools, Floats, Ints, ints, median_of, where

LAUNCH, SYNC, BEGIN, END = 0, 1, 2, 3  # BEGIN and END: the event records around a step
# Host cost of copying one input into its static tensor: one eager copy_ and its launch.
COPY_HOST_US = 5.0
# A small copy on the device, and the memory speed for larger ones (H200: 2 TB/s read + write).
COPY_DEVICE_US = 1.5
COPY_BYTES_PER_US = 2e6
# Host time of one replay call where it was not measured: so much and so much more per node.
# An H200 host took 20 to 350 us for 57 to 1,400 nodes.
REPLAY_US, REPLAY_NODE_US = 20.0, 0.2
# The most events of one simulation, so that a report takes seconds at most.
_MOST_EVENTS = 120_000
_FIT_WITHIN = 2e-3  # of a factor: simulations end when none moves by more
_SCALES = (0.2, 3.0)
# More than this per recorded event is not the profiler (H200 host: about 1 us).
_MOST_EVENT_NS = 1500.0


@dataclass(frozen=True)
class Costs:
    """What the machine adds to the loop's own times."""

    latency_ns: float = 4000.0  # from a launch call to the start of its kernel on an idle GPU
    dispatch_ns: float = 800.0  # from one kernel's end to the next one's start, if it is queued
    wake_ns: float = 6000.0  # from the GPU's last work to the return of a synchronization
    queue_limit: int = QUEUE_LIMIT


_USUAL = Costs()


@dataclass(frozen=True)
class Loop:
    """The events of one or more iterations in host order, ending with an END."""

    kind: Ints
    gap_ns: Floats  # the host's own time since the event before, waits taken out
    kept_ns: Floats  # of it, data, set-up and pauses, which no replay removes
    work_ns: Floats  # GPU time that a launch brings
    waits: Bools  # launches that also wait
    in_step: Bools
    behind_backward: Bools  # what a graph of forward and backward leaves eager
    upload: Bools  # copies from the host to the device

    @property
    def iterations(self) -> int:
        return int((self.kind == END).sum())

    def chosen(self, rows: Bools | Ints) -> Loop:
        """The loop with only these events, or these in this order."""
        return Loop(*(getattr(self, column.name)[rows] for column in fields(self)))

    def scaled(self, step: float, between: float) -> Loop:
        """The loop with the host's own time stretched, inside steps and between them."""
        gap_ns = self.gap_ns * np.where(self.in_step, step, between)
        return replace(self, gap_ns=gap_ns, kept_ns=np.minimum(self.kept_ns, gap_ns))

    def without_waits(self) -> Loop:
        """The same host work and launches with nothing that waits for the GPU."""
        return replace(self, waits=np.zeros_like(self.waits)).without(self.kind == SYNC)

    def without(self, rows: Bools) -> Loop:
        """The loop without these events. Their gaps are added to the event that follows."""
        elapsed = np.cumsum(self.gap_ns)[~rows]
        return replace(self.chosen(~rows), gap_ns=np.diff(elapsed, prepend=0.0))


@dataclass(frozen=True)
class Run:
    """Milliseconds per simulated iteration, as the timing pass would have measured them."""

    iteration: Floats  # between step ends on the GPU's clock
    step: Floats
    host: Floats
    host_between: Floats


def simulate(loop: Loop, iterations: int, costs: Costs = _USUAL) -> Run:
    """Run `iterations` of the loop one after another on a machine that was idle: in a closed form
    (a running maximum) if nothing waits and the queue does not fill, else event by event."""
    repeats = -(-iterations // max(loop.iterations, 1))
    rows = np.tile(np.arange(len(loop.kind)), repeats)
    last = np.flatnonzero(loop.kind[rows] == END)[iterations - 1]  # nothing later is asked for
    unrolled = loop.chosen(rows[: last + 1])
    quick = None if unrolled.waits.any() or (loop.kind == SYNC).any() else _closed(unrolled, costs)
    host, gpu = quick if quick is not None else simulate_plainly(unrolled, costs)
    marks = unrolled.kind[unrolled.kind != LAUNCH]
    begin, end = (np.flatnonzero(marks == kind)[:iterations] for kind in (BEGIN, END))
    return Run(
        iteration=np.diff(gpu[end]) / 1e6,
        step=(gpu[end] - gpu[begin]) / 1e6,
        host=(host[end] - host[begin]) / 1e6,
        host_between=(host[begin[1:]] - host[end[:-1]]) / 1e6,
    )


def simulate_plainly(loop: Loop, costs: Costs) -> tuple[Floats, Floats]:
    """When the host and when the GPU reaches each event that is not a launch."""
    latency, dispatch, wake, limit = astuple(costs)
    host_at: list[float] = []
    gpu_at: list[float] = []
    ends = [-np.inf] * limit  # of launches; before the first ones nothing was in the queue
    push = ends.append
    host, free = 0.0, -dispatch
    waits = loop.waits | (loop.kind == SYNC)
    rows = (loop.kind == LAUNCH, loop.gap_ns, loop.work_ns, waits)
    # Millions of launches come here: keeping their times, or max(), would take a third longer.
    for launches, gap, work, waits_now in zip(*(column.tolist() for column in rows)):
        host += gap
        if launches:
            full = ends[-limit]
            if full > host:
                host = full
            ready = host + latency
            free += dispatch
            if ready > free:
                free = ready
            free += work
            push(free)
        else:
            ready = host + latency
            gpu_at.append(ready if ready > free else free)
            host_at.append(host)
        if waits_now and free > host:
            host = free + wake
    return np.asarray(host_at), np.asarray(gpu_at)


def _closed(loop: Loop, costs: Costs) -> tuple[Floats, Floats] | None:
    """The same for a loop without waits; None when the queue would have filled."""
    host = np.cumsum(loop.gap_ns)
    launches = loop.kind == LAUNCH
    called, work = host[launches], loop.work_ns[launches]
    through = np.cumsum(work + costs.dispatch_ns)
    ready = called + costs.latency_ns + work
    ends = through + np.maximum.accumulate(ready - through) if len(called) else ready
    limit = costs.queue_limit
    if len(ends) > limit and (ends[:-limit] > called[limit:]).any():
        return None
    free = np.concatenate(([-np.inf], ends))[np.cumsum(launches)[~launches]]
    host = host[~launches]
    return host, np.maximum(host + costs.latency_ns, free)


@dataclass(frozen=True)
class Model:
    """The fitted loop. Iteration times are medians over the simulated steps, in ms."""

    loop: Loop
    costs: Costs
    steps: int
    iteration_ms: float  # with nothing changed, to compare with the measured one

    def without_waits_ms(self) -> float:
        return _typical(simulate(self.loop.without_waits(), self.steps, self.costs))

    def replayed_ms(
        self,
        gpu_ms: float,
        host_us: float,
        input_tensors: int = 0,
        input_bytes: int = 0,
        keeps_rest: bool = False,
        moved_inputs: int = 0,
    ) -> float:
        """Iteration time with one graph launch in place of the step's launches and waits.

        `keeps_rest`: the graph holds forward and backward only. The script's own copies of
        `moved_inputs` from the host then write to the static tensors, and no host waits for them.
        """
        moved = _moved(self.loop, moved_inputs)
        # A synchronization right behind such a copy is its own.
        behind: Bools = np.append(False, moved[:-1]) & (self.loop.kind == SYNC)
        copies = max(0, input_tensors - int(moved.sum()) // self.loop.iterations)
        gap_ns = np.where(moved & self.loop.in_step, COPY_HOST_US * 1e3, self.loop.gap_ns)
        loop = replace(self.loop, gap_ns=gap_ns, waits=self.loop.waits & ~moved).without(behind)
        moved = moved[~behind]
        stays: Bools = ~loop.in_step | (loop.kind == END) | moved
        own: Bools = ~loop.in_step | moved
        if keeps_rest:
            stays, own = stays | loop.behind_backward, own | loop.behind_backward
        # Host time of what stays is untouched; of the step, only its end mark remains.
        kept = replace(loop, gap_ns=np.where(own, loop.gap_ns, 0.0)).chosen(stays)
        each = COPY_DEVICE_US + input_bytes / max(input_tensors, 1) / COPY_BYTES_PER_US
        gap = [COPY_HOST_US * 1e3] * copies + [host_us * 1e3]
        work = [each * 1e3] * copies + [gpu_ms * 1e6]
        begins = kept.kind == BEGIN
        replayed = kept.chosen(np.repeat(np.arange(len(begins)), np.where(begins, 1 + len(gap), 1)))
        # Of each BEGIN and its copies, all but the first become launches.
        new = (replayed.kind == BEGIN) & (np.diff(replayed.kind, prepend=END) == 0)
        replayed.kind[new] = LAUNCH
        replayed.gap_ns[new] = np.tile(gap, begins.sum())
        replayed.work_ns[new] = np.tile(work, begins.sum())
        return _typical(simulate(replayed, self.steps, self.costs))

    def in_pieces_ms(self, gpu_ms: float, input_tensors: int) -> float:
        """Iteration time with one graph for each piece of the step, where data, set-up, pauses and
        waits inside the step stay as they are. A piece stays eager where that is faster."""
        loop = self.loop
        mine, launches = loop.in_step, loop.in_step & (loop.kind == LAUNCH)
        waits = mine & (loop.waits | (loop.kind == SYNC))
        # A piece ends with its last launch: before what waits, after kept host time, or at the end.
        opens = ~mine | waits | (loop.kind == END) | (loop.kept_ns > 0)
        last = launches & (waits | np.append(opens[1:], True))
        stays: Bools = ~launches | last

        def of_piece(amount: Floats | Bools) -> Floats:
            return np.diff(np.cumsum(np.where(launches, amount, 0))[stays], prepend=0.0)

        through = np.cumsum(np.where(mine, loop.work_ns, 0.0))[loop.kind == END]
        eager_ns = median_of(np.diff(through, prepend=0.0))
        work = of_piece(loop.work_ns) * gpu_ms * 1e6 / max(eager_ns, 1.0)
        replay = 1e3 * (REPLAY_US * last[stays] + REPLAY_NODE_US * of_piece(np.ones(len(mine))))
        eager = of_piece(loop.gap_ns - loop.kept_ns)
        kept = np.diff(np.cumsum(np.where(mine, loop.kept_ns, 0.0))[stays], prepend=0.0)
        pieces = loop.chosen(stays)
        begins = pieces.kind == BEGIN
        gap = np.where(pieces.in_step, np.minimum(replay, eager) + kept, pieces.gap_ns)
        gap += np.where(begins, input_tensors * COPY_HOST_US * 1e3, 0.0)
        pieces = replace(pieces, gap_ns=gap, work_ns=np.where(pieces.in_step, work, pieces.work_ns))
        return _typical(simulate(pieces, self.steps, self.costs))


def fit(work: Work, times: StepTimes, profiler_us: float) -> Model | None:
    """The loop whose host times inside and between steps agree with the untraced ones.

    Launch calls lose their back-pressure, and each recorded operator and call the same cost, at
    least `profiler_us` a launch. A factor inside steps and one between them, found by simulations,
    make up for the rest, unless the host waits for the GPU. None with nothing to simulate.
    """
    built = _loop(work, profiler_us, median_of(times.host)) if len(times.host) else None
    if built is None:
        return None
    loop, costs = built
    per_iteration = len(loop.kind) / loop.iterations
    steps = int(np.clip(_MOST_EVENTS // per_iteration, 6, max(6, min(times.steps, 40))))
    wanted = _medians(times.host, times.host_between, np.nan)
    parts = (loop.in_step, ~loop.in_step)
    own = np.array([loop.gap_ns[rows].sum() for rows in parts]) / loop.iterations / 1e6
    fits = (own > 0) & ~np.isnan(wanted)
    own = np.where(fits, own, 1.0)
    scale = np.ones(2)
    run = simulate(loop, steps, costs)
    for _ in range(6):
        found = _medians(run.host, run.host_between)
        tried = np.where(fits, np.clip(scale + (wanted - found) / own, *_SCALES), scale)
        if np.allclose(tried, scale, rtol=_FIT_WITHIN):
            break
        moved = simulate(loop.scaled(*tried), steps, costs)
        expected = (tried - scale) * own
        change = _medians(moved.host, moved.host_between) - found
        # Host time that does not follow the host's own work is a wait for the GPU.
        waits = change * np.sign(expected) < 0.5 * np.abs(expected)
        tried = np.where(waits, scale, tried)
        if np.allclose(scale, tried, rtol=_FIT_WITHIN):
            break
        scale = tried
        run = simulate(loop.scaled(*scale), steps, costs) if waits.any() else moved
    return Model(loop.scaled(*scale), costs, steps, _typical(run))


def _medians(host: Floats, between: Floats, otherwise: float = 0.0) -> Floats:
    return np.array([median_of(host), median_of(between) if len(between) else otherwise])


def _typical(run: Run) -> float:
    return median_of(run.iteration if len(run.iteration) else run.step)


def _loop(work: Work, profiler_us: float, host_ms: float) -> tuple[Loop, Costs] | None:
    """The used iterations of a trace as one loop, and the machine's costs seen in it."""
    windows, used = work.iterations, work.iterations.used
    chosen = np.flatnonzero(np.isin(work.iteration, used))
    if not len(chosen):
        return None
    sync_start = ints(work.syncs, c.START)
    waiting = np.isin(windows.of(sync_start), used) & (work.own_copy < 0)
    waiting &= np.isin(work.syncs[c.TID], work.launches[c.TID])  # others hold up no launch
    gpu_work, costs = _gpu(work)
    waited_copy = _waiting_copies(work)
    held = np.where(waited_copy > 0, waited_copy, blocked_ns(work.launches))
    # Once it had to wait, a synchronization's whole duration is waiting and waking up.
    sync_held = np.where(work.waited > 0, ints(work.syncs, c.DUR), 0)
    kind = np.repeat([LAUNCH, SYNC, BEGIN, END], [len(chosen), waiting.sum(), len(used), len(used)])
    calls = np.concatenate((ints(work.launches, c.START)[chosen], sync_start[waiting]))
    time = np.concatenate((calls, windows.step_begin[used], windows.end[used]))
    hold = np.concatenate((held[chosen], sync_held[waiting], np.zeros(2 * len(used))))
    row = np.concatenate((windows.of(calls), used, used))
    launch = np.full(len(kind), -1)
    launch[: len(chosen)] = chosen
    # A step's BEGIN comes before all that starts with it, its END after.
    rank = np.select([kind == BEGIN, kind == END], [0, 2], 1)
    order = np.lexsort((rank, time, row))
    kind, time, hold, row, launch = kind[order], time[order], hold[order], row[order], launch[order]
    release = np.append(0, (time + hold)[:-1])
    before = np.where(np.diff(row, prepend=-1) != 0, windows.begin[row], release)
    gap = np.maximum(time - before, 0.0)
    in_step = (np.cumsum(kind == BEGIN) > np.cumsum(kind == END)) | (kind == END)
    in_step &= kind != BEGIN
    recorded = work.recorded(before, time)
    inside = max(float(recorded[in_step].sum()), 1.0)
    # Each event costs at least what the calibration says of a launch, spread over its events.
    least = profiler_us * 1000 * float((kind == LAUNCH)[in_step].sum()) / inside
    stretch = (gap[in_step].sum() - host_ms * 1e6 * len(used)) / inside
    gap = np.maximum(gap - np.clip(stretch, least, _MOST_EVENT_NS) * recorded, 0.3 * gap)
    paused, _ = staying(gap.astype(np.int64), unusual_limits(work))
    kept = np.maximum(kept_host_ns(work, before, time), paused)
    loop = Loop(
        kind=kind,
        gap_ns=gap,
        kept_ns=np.where(in_step, np.minimum(kept, gap), 0.0),
        work_ns=np.append(gpu_work, 0.0)[launch],
        waits=np.append(waited_copy > 0, False)[launch],
        in_step=in_step,
        behind_backward=in_step & work.behind_backward(time, row),
        upload=np.append(_uploads(work), False)[launch],
    )
    return loop, costs


def _gpu(work: Work) -> tuple[Floats, Costs]:
    """GPU time that each launch adds, overlap counted once, and the machine's own times."""
    start, end = ints(work.activities, c.START), ints(work.activities, c.END)
    launch = ints(work.activities, c.LAUNCH)
    reach = np.maximum.accumulate(end) if len(end) else end
    before = np.concatenate(([0], reach[:-1]))
    added = np.maximum(0, end - np.maximum(start, before))
    idle = np.maximum(start - before, 0)
    idle[:1] = 0
    # Gaps between the nodes of one graph belong to the graph.
    same = np.concatenate(([False], launch[1:] == launch[:-1]))
    total = np.zeros(len(work.launches))
    known = launch >= 0
    call_start = np.append(ints(work.launches, c.START), 0)[launch]
    call_end = np.append(ints(work.launches, c.END), 0)[launch]
    # What kept queued work waiting keeps it waiting again. The first has no idle time before it.
    stalled = np.where(idle > 0, stalled_ns(before, start, call_end)[0], 0)
    np.add.at(total, launch[known], (added + np.where(same, idle, stalled))[known])
    late = known & ~same & (before < call_start)
    queued = known & ~same & (call_end <= before) & (idle < 5000)
    woke = (ints(work.syncs, c.END) - work.drained)[work.waited > 0]
    return total, Costs(
        latency_ns=_median((start - call_start)[late], _USUAL.latency_ns),
        dispatch_ns=_median(idle[queued], _USUAL.dispatch_ns),
        wake_ns=_median(np.maximum(woke, 0), _USUAL.wake_ns),
    )


def _median(values: Ints, otherwise: float) -> float:
    return median_of(values) if len(values) >= 3 else otherwise


def _waiting_copies(work: Work) -> Ints:
    """How many ns each launch waited: a copy whose call lasted until the copy was done."""
    launches, duration = work.launches, ints(work.launches, c.DUR)
    blocking = launches[c.BLOCKING]
    lasted = blocking & (ints(launches, c.END) >= ints(launches, c.LAST))
    base = int(median_of(duration[~blocking])) if not blocking.all() else 4000
    return np.where(lasted, np.maximum(duration - base, 1), 0)


def _uploads(work: Work) -> Bools:
    """Whether each launch copies from the host to the device."""
    way = work.activities[c.COPY]
    up = where(way, lambda way: way.endswith("-> Device") and not way.startswith("Device"))
    found = np.zeros(len(work.launches) + 1, bool)
    found[ints(work.activities, c.LAUNCH)[up]] = True
    return found[:-1]


def _moved(loop: Loop, moved_inputs: int) -> Bools:
    """The script's own copies of `moved_inputs` inputs to the device: the last of an iteration,
    inside the step or, as in `model(x.to("cuda"))`, before it."""
    ends = loop.kind == END
    iteration = (np.cumsum(ends) - ends)[loop.upload]
    from_last = np.searchsorted(iteration, iteration, "right") - np.arange(len(iteration))
    found = np.zeros(len(ends), bool)
    found[np.flatnonzero(loop.upload)[from_last <= moved_inputs]] = True
    return found
