"""A trace by itself in, Profile out.

Nothing was timed without a profiler here. Its usual cost is subtracted from each operator and call
that was recorded while the GPU waited; the bounds of the gain span every cost that was observed.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from msgspec.structs import replace

from launchscope.analysis.launching import with_traced
from launchscope.analysis.profile_builder import ProfileBuilder
from launchscope.analysis.replay_model.gain import TracedSteps, project_by_subtraction
from launchscope.analysis.replay_model.prediction import Prediction, made_capturable
from launchscope.analysis.steps.period import MIN_STEPS
from launchscope.analysis.steps.steps import Steps, steps_of, whole_steps
from launchscope.analysis.timeline.communication import waits_for_ranks
from launchscope.analysis.timeline.devices import device_rows
from launchscope.analysis.timeline.timeline import (
    Timeline,
    exposed,
    single_window,
)
from launchscope.analysis.timeline.work import OnWork, Work, gather
from launchscope.analysis.timing import StepTimes, median_or_none
from launchscope.errors import InputError
from launchscope.model import DeviceRow, Environment, Profile, Reason, Replay, Shapes, Target
from launchscope.parser import columns as c
from launchscope.parser.launches import Launches, find_launches
from launchscope.parser.trace import Bools, Floats, Ints, Trace, ints, median_of, where
from launchscope.wording import listed, plural

# Host time in us that recording adds to an operator or call: typical, least and most of the 14
# recorded samples (traced against untimed iterations; H200 host, torch 2.11).
RECORDING_US = (2.2, 1.2, 4.8)
# Recording adds at most this share of the exposed time: typically, and in the worst recording.
_MAX_RECORDING_SHARE = (0.55, 0.68)
# With a smaller share of the device work joined to its launch, idle time has no known cause.
_MIN_COVERAGE_PCT = 50.0
# With more damaged events, or launch calls that lost their device work, figures are wrong.
_MAX_DAMAGED_PCT = 1.0
_MAX_LOST_PCT = 5.0
# No work on a GPU takes less than the first. What does so in the file took the second or more.
_LEAST_WORK_NS = (100, 500)
# With more of the GPU's busy time hidden by that, busy and idle time are wrong.
_MAX_HIDDEN_PCT = 5.0
# A replay with its input copies is about as many calls as this.
_MIN_LAUNCHES = 5
# What is not known where launch calls have no duration.
_OF_CALLS = (
    "launch_api_ms", "launch_api_raw_ms", "launch_share_pct", "blocked_launch_ms", "framework_ms",
    "launch_call_ms", "queue_delay_us",
)  # fmt: skip
# With a larger share of this GPU's busy time on another one, a step is not that of one GPU.
_MAX_ELSEWHERE = 0.1
# Clocks of host and GPU that differ by more disagree, but for a share of wrong timestamps. In 81
# public traces, 15 recordings and tests/truth (H200) none is off by more than 8 us.
_CLOCKS_NS, _OUTLIERS = 100_000, 0.01
_SHARED_IDS = (
    "several calls of one process share a correlation id, as in merged files of processes with the "
    "same number"
)


def profile_of_trace(
    trace: Trace,
    name: str,
    *,
    threshold_pct: float = 15.0,
    expected_steps: int | None = None,
    step_from: str = "auto",
    step_range: str | None = None,
    details: bool = True,
    on_work: OnWork | None = None,
) -> Profile:
    """The Profile of one trace file, mode "trace", without a verdict. `details`: with what a page
    draws of an iteration, and how its work was launched and by what. `on_work` gets what it is
    made of.

    Raises InputError when the trace holds no device work, or not the steps asked for.
    """
    joined = find_launches(trace)
    if not len(trace.activities):
        raise InputError(
            "the trace holds no device work",
            hint="record it on a machine with a GPU: ProfilerActivity.CUDA, or nsys --trace cuda",
        )
    steps = whole_steps(trace, joined, steps_of(trace, joined, step_from, step_range))
    work = gather(trace, steps.iterations, joined, alone=True)
    if not np.isin(work.activity_step, steps.iterations.used).any():
        text = "the steps of the trace launched no work on a GPU"
        if not len(joined.calls):
            events, why = plural(len(trace.activities), "GPU event"), ""
            if joined.reused:
                why = f" ({_SHARED_IDS})"
            text = f"the trace has no launch call for its {events}{why}, so no step can be found"
        raise InputError(text, hint="--step-from none reports on the whole span")
    if on_work is not None:
        on_work(work)
    optimizer = made_capturable(work)
    traced = TracedSteps.of(work, optimizer)
    if not work.iterations.whole:
        traced = replace(traced, timeline=_without_overlap(traced.timeline))
    rows = device_rows(joined, work)
    unknown = _gain_unknown(steps, traced, threshold_pct, asked_for_span=step_from == "none")
    if unknown is None and _works_elsewhere(rows):
        unknown = Reason("several_gpus")
    if unknown is None and _clocks_disagree(joined):
        unknown = Reason("clocks_disagree")
    if unknown is not None:
        traced = replace(traced, predicted=None)
    times, bounds = _times(traced)
    builder = ProfileBuilder()
    if trace.damage.any:
        builder.notes.append(f"the file is damaged: {trace.damage.text}")
    builder.notes += [*steps.notes, *_notes(trace, joined, rows, times, bounds[1])]
    builder.add_times(times)
    builder.add_trace(traced, times, timed_untraced=False)
    if len(work.launches) and not ints(work.launches, c.DUR).any():
        builder.notes.append("no launch call has a duration in the file: time in them is not known")
        for key in _OF_CALLS:
            builder.set(key, None)
    fastest_ms, traced_ms = bounds
    if not work.iterations.whole and traced_ms > 1.005 * (times.iteration_ms or traced_ms):
        timed = builder.metrics["iteration_ms"]
        builder.metrics["iteration_ms"] = replace(timed, low=fastest_ms, high=traced_ms)
    if traced.predicted is not None and optimizer.added_kernels:
        builder.notes.append(
            f"the predicted replay has {plural(optimizer.added_kernels, 'kernel')} that the trace "
            "does not have: a capture needs capturable=True in the optimizer, for "
            f"{plural(optimizer.tensors, 'parameter')}"
        )
    _add_projection(builder, traced, times, *bounds)
    boundary = steps.boundary
    if work.one_thread and not work.optimizers:  # inference
        boundary = dataclasses.replace(boundary, scope="forward")
    builder.know(
        legacy_stream_kernels=None,  # nobody put the steps on a stream of their own
        gain_unknown=unknown,
        captured_launches=steps.captured_launches,
        has_operators=bool(len(trace.ops)) or trace.with_stack,
        optimizer_classes=work.optimizers or None,
        rank=trace.rank,
    )
    profile = Profile(
        target=Target("trace", name),
        environment=Environment(device=trace.device_name, world_size=trace.world_size or 1),
        mode="trace",
        step=boundary,
        shapes=Shapes(None),
        blockers=(),
        replay=Replay("skipped", Reason("trace_only")),
        devices=rows,
        threshold_pct=threshold_pct,
        expected_steps=expected_steps,
        **builder.parts,
    )
    return with_traced(profile, traced, details=details)


def _without_overlap(timeline: Timeline) -> Timeline:
    """Work of two iterations may run at the same time and take longer than an iteration. The GPU
    was busy while it was not idle."""
    busy, iteration = timeline.iteration_busy, timeline.traced_iteration
    while_not_idle = np.maximum(iteration - timeline.iteration_idle["idle"], 0)
    busy = np.where(busy > iteration, while_not_idle, busy)
    return replace(timeline, iteration_busy=busy)


def _gain_unknown(
    steps: Steps, traced: TracedSteps, threshold_pct: float, *, asked_for_span: bool
) -> Reason | None:
    """Why these steps do not show a gain, whatever their figures are."""
    work = traced.work
    trace, used = work.trace, work.iterations.used
    events = len(trace.calls) + len(trace.activities) + len(trace.ranges) + len(trace.ops)
    damaged = trace.damage.events_dropped + trace.damage.durations_repaired
    if trace.damage.cut:
        return Reason("file_cut")
    if 100 * damaged > _MAX_DAMAGED_PCT * (events + damaged):
        return Reason("file_damaged", {"events": damaged})
    lasted = ints(work.activities, c.DUR)
    short = int((lasted < _LEAST_WORK_NS[0]).sum())
    if 100 * short * _LEAST_WORK_NS[1] > _MAX_HIDDEN_PCT * max(int(lasted.sum()), 1):
        return Reason("no_durations", {"short": short, "works": len(lasted)})
    orphans = _orphans(work)
    orphan_pct = 100 * float(lasted[orphans].sum()) / max(float(lasted.sum()), 1.0)
    if (work.coverage_pct or 0.0) < _MIN_COVERAGE_PCT or orphan_pct > _MAX_LOST_PCT:
        unknown = orphans if orphans.any() else ints(work.activities, c.LAUNCH) < 0
        counts = {"unknown": int(unknown.sum()), "events": len(orphans)}
        return Reason("launches_unknown", counts)
    if 100 * steps.lost > _MAX_LOST_PCT * steps.calls:
        counts = {"found": steps.calls - steps.lost, "calls": steps.calls}
        return Reason("graph_capture") if steps.captured else Reason("work_lost", counts)
    if steps.boundary.boundary == "none":
        return Reason("whole_span" if asked_for_span else "no_step")
    launches = median_of(work.iterations.summed(work.step))
    waits_inside = median_of(traced.accounts.counts["syncs_per_step"])  # each ends a graph
    if _MIN_LAUNCHES <= launches < waits_inside * _MIN_LAUNCHES:
        return Reason("few_between_waits", {"launches": launches, "waits": waits_inside})
    if launches < _MIN_LAUNCHES:
        return Reason("few_launches", {"launches": launches})
    waits = waits_for_ranks(work, traced.timeline.traced_iteration)
    if waits is not None:
        return waits
    # Pauses and set-up of a few iterations may be their usual ones or not; a median over more
    # leaves out those that happened once.
    idle = traced.timeline.iteration_idle
    paused, setup = float(idle["paused"].sum()), float(idle["setup"].sum())
    held, all_of_it = paused + setup, float(idle["idle"].sum())
    matters = 100 * held >= threshold_pct * float(traced.timeline.traced_iteration.sum())
    if len(used) < MIN_STEPS and held > all_of_it / 2 and matters:
        if setup > paused:
            return Reason("set_up", {"share_pct": 100 * setup / all_of_it})
        return Reason(
            "pauses", {"pauses": int(idle["pauses"].sum()), "gaps": int(idle["gaps"].sum())}
        )
    return None


def _clocks_disagree(joined: Launches) -> bool:
    """Whether work begins well before its launch call, ends well after the call of a blocking copy
    to the host (of one to the device the call waits only until the driver has read it), or all
    begins after the host by more than the host's time: so the GPU's timestamps are off."""
    start, end, first, last = (ints(joined.calls, n) for n in (c.START, c.END, c.FIRST, c.LAST))
    early = (start - first > _CLOCKS_NS).sum() > _OUTLIERS * len(start)
    to_host = where(joined.activities[c.COPY], lambda way: way.startswith("Device -> P"))
    copies = ints(joined.activities, c.LAUNCH)[to_host]
    late = (last - end > _CLOCKS_NS) & joined.calls[c.BLOCKING]
    late &= np.isin(np.arange(len(late)), copies)
    apart = first.min() - end.max() > max(end.max() - start.min(), _CLOCKS_NS)
    return bool(early or late.any() or apart)


def _works_elsewhere(rows: tuple[DeviceRow, ...]) -> bool:
    """Whether a process in the figures works on other GPUs, too, so that one waits for another."""
    mine = [row for row in rows if row.in_figures]
    own = {row.process for row in mine} - {None}
    most = max((row.busy_ms for row in mine), default=0.0)
    others = (row.busy_ms for row in rows if row.process in own and not row.in_figures)
    return max(others, default=0.0) > _MAX_ELSEWHERE * most


def _orphans(work: Work) -> Bools:
    """Device work without a known launch that began while the host was recorded. Before, and as far
    as it was queued by then, it was launched before the recording began."""
    trace = work.trace
    host = [*map(work.iterations.of_process, (trace.calls, trace.ops, trace.ranges))]
    times = np.concatenate([ints(table, c.START) for table in host])
    start, unknown = ints(work.activities, c.START), ints(work.activities, c.LAUNCH) < 0
    recorded = (start >= times.min(initial=np.iinfo(np.int64).max)) & (
        start <= times.max(initial=0)
    )
    # What still ran after the host was recorded has the id of a call among the recorded ones.
    last = int(ints(host[0], c.CORRELATION).max(initial=-1))
    recorded |= (start > times.max(initial=0)) & (ints(work.activities, c.CORRELATION) <= last)
    found: Bools = unknown & recorded & ~work.activities[c.EARLIER]
    return found


def _times(traced: TracedSteps) -> tuple[StepTimes, tuple[float, float]]:
    """Times of the used iterations with the profiler's typical cost subtracted, and the median
    iteration in ms with the highest observed cost subtracted and with none.

    The cost shows only in idle time that the host's own work explains: where the GPU is busy or
    the host waits, a slower host costs nothing.
    """
    work, timeline = traced.work, traced.timeline
    used, windows = work.iterations.used, work.iterations
    idle, step_idle = timeline.iteration_idle, timeline.step_idle
    # Without what may be pauses, in which nothing is recorded.
    launching, step_launching = (
        np.maximum(exposed(part) - part["unsure"] / 2, 0) for part in (idle, step_idle)
    )
    events = work.recorded(windows.begin, windows.end)[used]
    inside = work.recorded(windows.step_begin, windows.end)[used]
    iteration, step = timeline.traced_iteration, _step_ms(work)
    if windows.whole:  # from the first launch or device activity to the end of the last activity
        begins = np.append(ints(work.activities, c.START), ints(work.launches, c.START))
        iteration = step = np.array([ints(work.activities, c.END).max() - begins.min()]) / 1e6
    # Totals of the whole span stay as they are in the file; only the bounds allow for recording.
    typical = 0.0 if windows.whole else RECORDING_US[0] / 1e3
    most = RECORDING_US[2] / 1e3
    host = (windows.end - windows.step_begin)[used] / 1e6
    between = (windows.step_begin - windows.begin)[used] / 1e6
    known = iteration > 0  # an iteration without device work has no time on the GPU's clock
    cut = np.minimum(typical * events, _MAX_RECORDING_SHARE[0] * launching)
    step_cut = np.minimum(typical * inside, _MAX_RECORDING_SHARE[0] * step_launching)
    # A host that recording slows down is late behind a wait, too.
    behind = launching + idle["sync"] + idle["data"]
    most_cut = np.minimum(most * events, _MAX_RECORDING_SHARE[1] * behind)
    fastest_ms = median_or_none((iteration - most_cut)[known]) or 0.0
    return StepTimes(
        iteration=(iteration - cut)[known],
        host_iteration=np.maximum(host + between - typical * events, 0.3 * (host + between)),
        step=(step - step_cut)[known],
        host=np.maximum(host - typical * inside, 0.3 * host),
        host_between=np.maximum(between - typical * (events - inside), 0.3 * between),
        wall_check_pct=None,
        steps=len(used),
    ), (fastest_ms, median_or_none(iteration[known]) or 0.0)


def _step_ms(work: Work) -> Floats:
    """From when the GPU could begin with a step to the end of its last work, per used step."""
    last = work.last_end(work.activity_step)
    # Work between steps comes before the step of its iteration.
    earlier = work.last_end(np.where(work.activity_step < 0, work.activity_iteration, -1))
    free = np.maximum(np.maximum.accumulate(np.append(0, last[:-1])), earlier)
    if work.iterations.single:
        free[:] = single_window(work)[0]
    begin = np.maximum(work.iterations.step_begin, free)
    spans: Ints = np.maximum(last - begin, 0)[work.iterations.used]
    return spans / 1e6


def _notes(
    trace: Trace, joined: Launches, rows: tuple[DeviceRow, ...], times: StepTimes, traced_ms: float
) -> list[str]:
    notes = []
    if joined.reused:
        notes.append(
            f"the launch of {plural(joined.reused, 'GPU event')} is not known: {_SHARED_IDS}"
        )
    if earlier := int(joined.activities[c.EARLIER].sum()):
        notes.append(
            f"the recording began after the launch of {plural(earlier, 'GPU event')}, which "
            "count as busy time only"
        )
    if times.iteration_ms is not None and traced_ms > 1.005 * times.iteration_ms:
        typical, least, most = RECORDING_US
        notes.append(
            f"the traced iteration takes {traced_ms:.3g} ms; {typical} us were subtracted for each "
            "operator and call that was recorded while the GPU waited, at most "
            f"{100 * _MAX_RECORDING_SHARE[0]:.0f} % of the time in which it waited for them. An "
            f"H200 host needed {least} to {most} us, and the bounds allow for that"
        )
    early = ints(joined.calls, c.START) - ints(joined.calls, c.FIRST)
    if (early > 0).any():
        notes.append(
            f"{plural(int((early > 0).sum()), 'launch')} reached the GPU up to "
            f"{early.max() / 1e3:.3g} us before the call: the clocks of host and GPU disagree, so "
            "idle time and queue delay are wrong by as much"
        )
    if trace.with_stack:
        notes.append(
            "the trace was recorded with Python stacks, which slow the host down further: idle "
            "time and any gain are upper limits"
        )
    if len(rows) > 1:
        gpus = sorted({row.device for row in rows if row.in_figures})
        owners = {row.process for row in rows if row.in_figures} - {None}
        whose = f"process {owners.pop()}" if len(owners) == 1 else "all processes"
        notes.append(
            f"the figures are those of {whose} on GPU {listed(list(map(str, gpus)))}; the file "
            f"holds {plural(len({row.device for row in rows}), 'GPU')} and "
            f"{plural(len({row.process for row in rows}), 'process')}"
        )
    return notes


def _add_projection(
    builder: ProfileBuilder,
    traced: TracedSteps,
    times: StepTimes,
    fastest_ms: float,
    traced_ms: float,
) -> None:
    """The iteration with a replay, its bounds widened by what recording may have cost."""
    predicted, iteration = traced.predicted, times.iteration_ms
    if predicted is None or not iteration:
        return
    timeline, accounts = traced.timeline, traced.accounts
    idle, step_idle = timeline.iteration_idle, timeline.step_idle
    # Nobody knows how much of the longer gaps in the step a replay removes, or of those behind its
    # last launch. What the host does between steps is not removed.
    between = median_or_none(times.host_between) or 0.0
    unsure_ms, unusual_ms, outside_ms = (
        max(median_of(step_idle[name]), median_of(idle[name]) - between)
        for name in ("unsure", "unusual", "outside")
    )
    # What recording added was spread over all that the host did.
    exposed_ms = median_of(exposed(idle))
    outside_ms *= 1 - min((traced_ms - iteration) / max(exposed_ms, 1e-9), _MAX_RECORDING_SHARE[0])
    # Nobody takes the waits out of the step: what an iteration without them saves is no gain.
    held_ms = median_of(step_idle["paused"] + step_idle["setup"] + step_idle["sync"])
    replay = Prediction(
        predicted.ms + held_ms, predicted.low_ms + held_ms, predicted.high_ms + held_ms
    )
    waits = accounts.syncs_between.any() or accounts.counts["syncs_per_step"].any()
    projection = project_by_subtraction(times, replay, timeline.busy_between_ms, overlaps=not waits)
    if projection is None:
        return
    # What stays is part of what the projection removes: eager is possible, too.
    outside_ms = min(outside_ms, max(projection.eager_ms - projection.replayed_ms, 0.0))
    unsure_pct, unusual_pct, outside_pct = (
        100 * ms / iteration for ms in (unsure_ms, unusual_ms, max(unusual_ms, outside_ms))
    )
    builder.know(
        unsure_idle_pct=unsure_pct, unusual_idle_pct=unusual_pct, outside_idle_pct=outside_pct
    )
    low = projection.low_pct - unsure_pct / 2 - unusual_pct
    # A projection keeps the host's work between steps, which shrinks with the iteration.
    if fastest_ms > 0:
        low = min(low, 100 * (1 - projection.replayed_ms / fastest_ms))
    slowest = 100 * (1 - projection.replayed_ms / max(traced_ms, iteration))
    high = max(projection.high_pct + unsure_pct / 2, slowest)
    builder.add_projection(replace(projection, low_pct=low, high_pct=min(high, 100.0)))
