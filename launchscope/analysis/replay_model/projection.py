"""The loop of a trace as the simulation sees it, fitted to the untraced times, and with its
step replayed: what the iteration would take then."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from launchscope.analysis.replay_model.simulation import (
    BEGIN,
    END,
    LAUNCH,
    SYNC,
    Costs,
    Loop,
    Run,
    simulate,
)
from launchscope.analysis.timeline.accounting import blocked_ns
from launchscope.analysis.timeline.work import Work
from launchscope.analysis.timing import StepTimes
from launchscope.parser import columns as c
from launchscope.parser.trace import Bools, Floats, Ints, ints

# Host cost of copying one input into its static tensor: one eager copy_ and its launch.
COPY_HOST_US = 5.0
# A small copy on the device, and the memory speed for larger ones (H200: 2 TB/s read + write).
COPY_DEVICE_US = 1.5
COPY_BYTES_PER_US = 2e6
# Events that a simulation may go through, so that a report takes seconds at most.
_MOST_EVENTS = 120_000
_SCALES = (0.2, 3.0)
# More than this per recorded event is not the profiler (H200 host: about 1 us).
_MOST_EVENT_NS = 1500.0


@dataclass(frozen=True)
class ReplayCost:
    """What a replayed step costs: GPU and host time of the replay, and its input copies.

    `moved_inputs` of the inputs come from the host: the script's own copies of them, which take
    the GPU as long as they did, go into static tensors and do not wait.
    """

    gpu_ms: float
    host_us: float
    input_tensors: int = 0
    input_bytes: int = 0
    keeps_rest: bool = False  # forward and backward only
    moved_inputs: int = 0


@dataclass(frozen=True)
class Model:
    """The fitted loop. Every iteration time is a median over the simulated steps, in ms."""

    loop: Loop
    costs: Costs
    steps: int
    iteration_ms: float  # with nothing changed: to be held against the measured one
    host_scale: tuple[float, float]  # inside and between steps, untraced by traced host time

    def without_waits_ms(self) -> float:
        """Iteration time with the same work and no synchronisation."""
        return _typical(simulate(self.loop.without_waits(), self.steps, self.costs))

    def replayed_ms(self, cost: ReplayCost) -> float:
        """Iteration time with the step's launches and waits replaced by one graph launch.

        What happens between steps stays as it is, but for the copies of `moved_inputs`.
        """
        return _typical(simulate(_replayed(self.loop, cost), self.steps, self.costs))


def host_replay_us(operations: float) -> float:
    """Host time of one replay call, where it was not measured: 20 us and 0.2 us per node.

    Measured on an H200: 20 to 350 us for 57 to 1,400 nodes.
    """
    return 20.0 + 0.2 * operations


def fit(work: Work, times: StepTimes, profiler_us: float) -> Model | None:
    """The loop whose host times inside and between steps agree with the untraced ones.

    Launch calls lose their back-pressure. Tracing stretches the host by about as much for every
    operator and call that it records: that much is taken out, at least `profiler_us` a launch.
    What is left is made up for by one factor inside steps and one between them, found by
    simulating. Where the host waits for the GPU, its own time does not show: the factor stays.
    None when there is nothing to simulate.
    """
    built = _loop(work, profiler_us, float(np.median(times.host))) if len(times.host) else None
    if built is None:
        return None
    loop, costs = built
    per_iteration = len(loop.kind) / loop.iterations
    steps = int(np.clip(_MOST_EVENTS // per_iteration, 6, max(6, min(times.steps, 40))))
    wanted = [float(np.median(times.host))]
    wanted.append(float(np.median(times.host_between)) if len(times.host_between) else np.nan)
    own = [loop.gap_ns[inside].sum() / loop.iterations / 1e6 for inside in
           (loop.in_step, ~loop.in_step)]  # fmt: skip
    scale = [1.0, 1.0]
    run = simulate(loop, steps, costs)
    for _ in range(6):
        tried = [_step(*each) for each in zip(scale, own, wanted, _host(run))]
        if np.allclose(tried, scale, rtol=2e-3):
            break
        moved = simulate(loop.scaled(*tried), steps, costs)
        for part in (0, 1):
            asked = (tried[part] - scale[part]) * own[part]
            got = _host(moved)[part] - _host(run)[part]
            # The host's time did not follow its own work: it waits for the GPU here.
            if asked and got / asked < 0.5:
                tried[part] = scale[part]
        scale = tried
        run = simulate(loop.scaled(*scale), steps, costs)
    return Model(loop.scaled(*scale), costs, steps, _typical(run), (scale[0], scale[1]))


def _step(scale: float, own: float, wanted: float, found: float) -> float:
    if own <= 0 or np.isnan(wanted):
        return scale
    return float(np.clip(scale + (wanted - found) / own, *_SCALES))


def _host(run: Run) -> tuple[float, float]:
    between = float(np.median(run.host_between)) if len(run.host_between) else 0.0
    return float(np.median(run.host)), between


def _typical(run: Run) -> float:
    return float(np.median(run.iteration if len(run.iteration) else run.step))


def _loop(work: Work, profiler_us: float, host_ms: float) -> tuple[Loop, Costs] | None:
    """The used iterations of a trace as one loop, and the machine's costs seen in it."""
    used = work.iterations.used
    launches, syncs = work.launches, work.syncs
    start = ints(launches, c.START)
    chosen = np.isin(work.iteration, used)
    own_copy = work.own_copy >= 0
    sync_start = ints(syncs, c.START)
    sync_chosen = np.isin(work.iterations.of(sync_start), used) & ~own_copy
    if not chosen.any():
        return None
    gpu_work, costs = _gpu(work)
    waited_copy = _waiting_copies(work)
    held = np.where(waited_copy > 0, waited_copy, blocked_ns(launches))
    # Once it had to wait, a synchronisation's whole duration is waiting and waking up.
    sync_held = np.where(work.waited > 0, ints(syncs, c.DUR), 0)
    marks = np.concatenate((work.iterations.step_begin[used], work.iterations.end[used]))
    time = np.concatenate((start[chosen], sync_start[sync_chosen], marks))
    kind = np.repeat(
        [LAUNCH, SYNC, BEGIN, END], [chosen.sum(), sync_chosen.sum(), len(used), len(used)]
    )
    none = np.zeros(len(marks))
    hold = np.concatenate((held[chosen], sync_held[sync_chosen], none))
    gpu = np.concatenate((gpu_work[chosen], np.zeros(sync_chosen.sum()), none))
    others = np.zeros(len(kind) - chosen.sum(), bool)
    waits = np.concatenate((waited_copy[chosen] > 0, others))
    upload = np.concatenate((_uploads(work)[chosen], others))
    row = np.concatenate((work.iterations.of(time[: -len(marks)]), used, used))
    # A step's BEGIN before all that starts with it, its END after.
    rank = np.select([kind == BEGIN, kind == END], [0, 2], 1)
    order = np.lexsort((rank, time, row))
    kind, time, hold, row = kind[order], time[order], hold[order], row[order]
    release = time + hold
    before = np.where(np.diff(row, prepend=-1) != 0, work.iterations.begin[row],
                      np.concatenate(([0], release[:-1])))  # fmt: skip
    gap = np.maximum(time - before, 0.0)
    in_step = (np.cumsum(kind == BEGIN) > np.cumsum(kind == END)) | (kind == END)
    in_step &= kind != BEGIN
    behind = in_step & work.behind_backward(time, row)
    recorded = work.recorded(before, time)
    inside = max(float(recorded[in_step].sum()), 1.0)
    # Each event costs at least what the calibration says of a launch, spread over its events.
    least = profiler_us * 1000 * float((kind == LAUNCH)[in_step].sum()) / inside
    stretch = (gap[in_step].sum() - host_ms * 1e6 * len(used)) / inside
    gap = np.maximum(gap - np.clip(stretch, least, _MOST_EVENT_NS) * recorded, 0.3 * gap)
    built = Loop(kind, gap, gpu[order], waits[order], in_step, behind, upload[order])
    return built, costs


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
    np.add.at(total, launch[known], (added + np.where(same, idle, 0))[known])
    call_start = np.append(ints(work.launches, c.START), 0)[launch]
    call_end = np.append(ints(work.launches, c.END), 0)[launch]
    usual = Costs()
    late = known & ~same & (before < call_start)
    queued = known & ~same & (call_end <= before) & (idle < 5000)
    woke = (ints(work.syncs, c.END) - work.drained)[work.waited > 0]
    return total, Costs(
        latency_ns=_median((start - call_start)[late], usual.latency_ns),
        dispatch_ns=_median(idle[queued], usual.dispatch_ns),
        wake_ns=_median(np.maximum(woke, 0), usual.wake_ns),
    )


def _median(values: Ints, otherwise: float) -> float:
    return float(np.median(values)) if len(values) >= 3 else otherwise


def _waiting_copies(work: Work) -> Ints:
    """Of each launch: ns it waited, if it is a copy whose call lasted until the copy was done."""
    launches = work.launches
    duration = ints(launches, c.DUR)
    blocking = launches[c.BLOCKING].to_numpy(bool)
    lasted = blocking & (ints(launches, c.END) >= ints(launches, c.LAST))
    ordinary = duration[~blocking]
    base = int(np.median(ordinary)) if len(ordinary) else 4000
    return np.where(lasted, np.maximum(duration - base, 1), 0)


def _uploads(work: Work) -> Bools:
    """Of each launch: whether it copies from the host to the device."""
    way = work.activities[c.COPY].astype(str)
    up = way.str.endswith("-> Device") & ~way.str.startswith("Device")
    found = np.zeros(len(work.launches) + 1, bool)
    found[ints(work.activities, c.LAUNCH)[up.to_numpy(bool)]] = True
    return found[:-1]


def _replayed(loop: Loop, cost: ReplayCost) -> Loop:
    """The loop with every step's inside taken out and a replay put in."""
    moved = _moved(loop, cost.moved_inputs)
    # A synchronisation right behind such a copy is its own.
    behind: Bools = np.append(False, moved[:-1]) & (loop.kind == SYNC)
    copies = max(0, cost.input_tensors - int(moved.sum()) // loop.iterations)
    gap_ns = np.where(moved & loop.in_step, COPY_HOST_US * 1e3, loop.gap_ns)
    loop = replace(loop, gap_ns=gap_ns, waits=loop.waits & ~moved).without(behind)
    moved = moved[~behind]
    stays: Bools = ~loop.in_step | (loop.kind == END) | moved
    own: Bools = ~loop.in_step | moved
    if cost.keeps_rest:
        stays, own = stays | loop.behind_backward, own | loop.behind_backward
    # Host time of what stays is untouched; of the step, only its end mark remains.
    kept = replace(loop, gap_ns=np.where(own, loop.gap_ns, 0.0)).chosen(stays)
    each = COPY_DEVICE_US + cost.input_bytes / max(cost.input_tensors, 1) / COPY_BYTES_PER_US
    gap = [COPY_HOST_US * 1e3] * copies + [cost.host_us * 1e3]
    work = [each * 1e3] * copies + [cost.gpu_ms * 1e6]
    size, steps = len(gap), int((kept.kind == END).sum())
    place = np.repeat(np.flatnonzero(kept.kind == BEGIN) + 1, size)
    return Loop(
        kind=np.insert(kept.kind, place, LAUNCH),
        gap_ns=np.insert(kept.gap_ns, place, np.tile(gap, steps)),
        work_ns=np.insert(kept.work_ns, place, np.tile(work, steps)),
        waits=np.insert(kept.waits, place, False),
        in_step=np.insert(kept.in_step, place, True),
        behind_backward=np.insert(kept.behind_backward, place, False),
        upload=np.insert(kept.upload, place, False),
    )


def _moved(loop: Loop, moved_inputs: int) -> Bools:
    """The script's own copies of so many inputs to the device.

    An argument's copy, `model(x.to("cuda"))`, is over before the step begins. So the last so
    many of an iteration's copies are meant, inside the step or in front of it.
    """
    ends = loop.kind == END
    iteration = (np.cumsum(ends) - ends)[loop.upload]
    from_last = np.searchsorted(iteration, iteration, "right") - np.arange(len(iteration))
    found = np.zeros(len(ends), bool)
    found[np.flatnonzero(loop.upload)[from_last <= moved_inputs]] = True
    return found
