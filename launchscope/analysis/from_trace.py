"""A trace by itself in, Profile out: what somebody else's trace file shows.

There is no untraced timing here, and recording slows the host down. From each operator and call
that was recorded while the GPU waited, the profiler's usual cost is subtracted; the bounds of the
gain span every cost that was observed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from launchscope.analysis.profile_builder import ProfileBuilder, TracedSteps
from launchscope.analysis.replay_model.capturable import made_capturable
from launchscope.analysis.replay_model.gain import Projection, Projector
from launchscope.analysis.replay_model.prediction import Prediction
from launchscope.analysis.steps.steps import Steps, steps_of, whole_steps
from launchscope.analysis.timeline.kernels import kernel_table
from launchscope.analysis.timeline.timeline import Timeline
from launchscope.analysis.timeline.work import Work, gather
from launchscope.analysis.timing import StepTimes, median_or_none
from launchscope.errors import InputError
from launchscope.model import Environment, Profile, Reason, Replay, Shapes, Target
from launchscope.parser import columns as c
from launchscope.parser.launches import Launches, find_launches
from launchscope.parser.trace import Floats, Ints, Trace, ints

# Host time in us that recording adds to an operator or call: typical, least and most of the 14
# recorded samples (traced against untimed iterations; H200 host, torch 2.11).
RECORDING_US = (2.2, 1.2, 4.8)
# Recording adds at most this share of the exposed time: typically, and in the worst recording.
_MAX_RECORDING_SHARE = (0.55, 0.68)
_PROCESS = 0xFFFFFF  # nsys puts the machine above the process's own number
# With a smaller share of the device work joined to its launch, idle time has no known cause.
_MIN_COVERAGE_PCT = 50.0
# Iterations with more launches are not simulated event by event; shorter ones are, up to as many
# launches altogether.
_MAX_LAUNCHES = 20_000


@dataclass(frozen=True)
class _Times:
    """Milliseconds per used iteration with the profiler's typical cost subtracted."""

    steps: StepTimes
    traced_ms: float  # the iteration as it stands in the file
    fastest_ms: float  # the iteration if recording cost the most that was ever observed


def profile_of_trace(
    trace: Trace,
    name: str,
    *,
    threshold_pct: float = 15.0,
    expected_steps: int | None = None,
    step_from: str = "auto",
    step_range: str | None = None,
) -> Profile:
    """The Profile of one trace file, mode "trace", without a verdict.

    Raises InputError when the trace holds no device work, or not the steps asked for.
    """
    joined = find_launches(trace)
    if not len(trace.activities):
        raise InputError(
            "the trace holds no device work",
            hint="record it with ProfilerActivity.CUDA, on a machine with a GPU",
        )
    steps = whole_steps(trace, joined, steps_of(trace, joined, step_from, step_range))
    work = gather(trace, steps.iterations, joined)
    if not np.isin(work.activity_step, steps.iterations.used).any():
        text = "the steps of the trace launched no work on a GPU"
        if not len(joined.calls):
            text = (
                f"none of the {len(trace.activities):,} kernels and copies in the trace has a call "
                f"that launched it{_reused(joined)}, so they belong to no step"
            )
        raise InputError(text, hint="--step-from none reports on the whole span")
    unknown = _unknown_gain(work)
    optimizer = made_capturable(work)
    traced = TracedSteps.of(work, optimizer if unknown is None else None)
    times = _times(traced)
    builder = ProfileBuilder()
    builder.notes += [*steps.notes, *_notes(trace, joined, steps, work, times)]
    builder.add_times(times.steps)
    builder.add_trace(traced)
    builder.add_shares(traced, times.steps)
    if traced.predicted is not None:
        if optimizer.added_kernels:
            builder.notes.append(
                f"the predicted replay has {optimizer.added_kernels:,} kernels that the trace does "
                "not have: a capture needs capturable=True in the optimizer, for "
                f"{optimizer.tensors:,} parameters"
            )
        _add_projection(builder, traced, traced.predicted, times)
    boundary = steps.boundary
    if work.one_thread and not work.optimizers:  # inference
        boundary = replace(boundary, scope="forward")
    return Profile(
        target=Target("trace", name),
        environment=Environment(device=trace.device_name, world_size=trace.world_size or 1),
        mode="trace",
        step=boundary,
        metrics=builder.metrics,
        shapes=Shapes(None),
        blockers=(),
        replay=Replay("skipped", Reason("trace_only")),
        kernels=kernel_table(work),
        notes=tuple(dict.fromkeys(builder.notes)),
        facts=replace(
            builder.facts,
            legacy_stream_kernels=None,  # nobody put the steps on a stream of their own
            legacy_kernels_names=None,
            gain_unknown=unknown,
            optimizer_classes=work.optimizers or None,
            rank=trace.rank,
        ),
        threshold_pct=threshold_pct,
        expected_steps=expected_steps,
    )


# ----------------------------------------------------------------------------- times


def _times(traced: TracedSteps) -> _Times:
    """Times of the used iterations, with the profiler's part subtracted where it shows.

    It shows only in idle time that the host's own work explains: where the GPU is busy or the
    host waits, a slower host costs nothing.
    """
    work, timeline = traced.work, traced.timeline
    used, windows = work.iterations.used, work.iterations
    idle, step_idle = timeline.iteration_idle, timeline.step_idle
    exposed = idle.framework + idle.launch_call
    step_exposed = step_idle.framework + step_idle.launch_call
    events = work.recorded(windows.begin, windows.end)[used]
    inside = work.recorded(windows.step_begin, windows.end)[used]
    iteration = timeline.traced_iteration
    step = _step_ms(work)
    if windows.whole:
        span = _span_ms(work)
        iteration = step = np.asarray([span])
    # Totals of the whole span stay as they are in the file; only the bounds allow for recording.
    typical = 0.0 if windows.whole else RECORDING_US[0] / 1e3
    most = RECORDING_US[2] / 1e3
    host = (windows.end - windows.step_begin)[used] / 1e6
    between = (windows.step_begin - windows.begin)[used] / 1e6
    known = iteration > 0  # an iteration without device work has no time on the GPU's clock
    cut = np.minimum(typical * events, _MAX_RECORDING_SHARE[0] * exposed)
    step_cut = np.minimum(typical * inside, _MAX_RECORDING_SHARE[0] * step_exposed)
    most_cut = np.minimum(most * events, _MAX_RECORDING_SHARE[1] * exposed)
    return _Times(
        steps=StepTimes(
            iteration=(iteration - cut)[known],
            host_iteration=np.maximum(host + between - typical * events, 0.3 * (host + between)),
            step=(step - step_cut)[known],
            host=np.maximum(host - typical * inside, 0.3 * host),
            host_between=np.maximum(between - typical * (events - inside), 0.3 * between),
            wall_check_pct=None,
            steps=len(used),
        ),
        traced_ms=median_or_none(iteration[known]) or 0.0,
        fastest_ms=median_or_none((iteration - most_cut)[known]) or 0.0,
    )


def _step_ms(work: Work) -> Floats:
    """From when the GPU could begin with a step to the end of its last work, per used step."""
    count, used = len(work.iterations), work.iterations.used
    last = np.zeros(count, np.int64)
    inside = work.activity_step >= 0
    np.maximum.at(last, work.activity_step[inside], ints(work.activities, c.END)[inside])
    earlier = np.zeros(count, np.int64)
    known = work.activity_iteration >= 0
    # Work between steps comes before the step of its iteration.
    before = known & (work.activity_step < 0)
    np.maximum.at(earlier, work.activity_iteration[before], ints(work.activities, c.END)[before])
    through = np.maximum(np.maximum.accumulate(np.concatenate(([0], last[:-1]))), earlier)
    begin = np.maximum(work.iterations.step_begin, through)
    spans: Ints = np.maximum(last - begin, 0)[used]
    return spans / 1e6


def _span_ms(work: Work) -> float:
    """From the first launch or device activity to the end of the last activity."""
    first = int(ints(work.activities, c.START).min())
    if len(work.launches):
        first = min(first, int(ints(work.launches, c.START).min()))
    return (int(ints(work.activities, c.END).max()) - first) / 1e6


def _notes(trace: Trace, joined: Launches, steps: Steps, work: Work, times: _Times) -> list[str]:
    notes = []
    if joined.reused:
        notes.append(f"{joined.reused:,} kernels and copies have no known launch{_reused(joined)}")
    if trace.damage.any:
        notes.append(f"the file is damaged: {trace.damage.text}")
    iteration = times.steps.iteration_ms
    if iteration is not None and times.traced_ms > 1.005 * iteration:
        typical, least, most = RECORDING_US
        notes.append(
            f"the traced iteration takes {times.traced_ms:.3g} ms; {typical} us were subtracted "
            "for each operator and call that was recorded while the GPU waited. An H200 host "
            f"needed {least} to {most} us, and the bounds allow for that"
        )
    early = ints(joined.calls, c.START) - ints(joined.calls, c.FIRST)
    if (early > 0).any():
        notes.append(
            f"{int((early > 0).sum()):,} launches reached the GPU up to {early.max() / 1e3:.3g} us "
            "before they were called: the clocks of host and GPU disagree, so idle time and queue "
            "delay are wrong by as much"
        )
    if trace.with_stack:
        notes.append(
            "the trace was recorded with Python stacks, which slow the host down further: the gain "
            "is an upper limit"
        )
    processes = trace.calls[c.PID].nunique()
    if processes > 1:
        whose = "all of them together"
        if not steps.iterations.whole:
            whose = f"process {(steps.iterations.pid or 0) & _PROCESS}"
        notes.append(f"the trace holds {processes} processes; figures are those of {whose}")
    return notes


def _reused(joined: Launches) -> str:
    if not joined.reused:
        return ""
    return (
        f" ({joined.reused:,} of them have a correlation id that several calls of one process "
        "share, as in merged files of processes with the same number)"
    )


# -------------------------------------------------------------------------- the gain


def _add_projection(
    builder: ProfileBuilder, traced: TracedSteps, predicted: Prediction, times: _Times
) -> None:
    """The iteration with a replay, its bounds widened by what recording may have cost."""
    work, iteration = traced.work, times.steps.iteration_ms
    if not iteration or not len(times.steps.step):
        return
    used = work.iterations.used
    per_step = np.isin(work.iteration, used).sum() / max(len(used), 1)
    if work.iterations.whole or per_step > _MAX_LAUNCHES:
        projection = _project_from_idle(traced.timeline, predicted, iteration)
    else:
        # The simulated loop repeats these iterations; more of them would say the same again.
        few = _central(used, int(max(6, _MAX_LAUNCHES // max(per_step, 1))))
        part = replace(work, iterations=replace(work.iterations, used=few))
        projector = Projector.of(part, traced.accounts, predicted, times.steps)
        if projector is None:
            return
        builder.add_simulation(projector)
        simulated = projector.project(None, None)
        assert simulated is not None
        projection = simulated
    low, high = projection.low_pct, projection.high_pct
    # A projection keeps the host's work between steps, which shrinks with the iteration.
    if times.fastest_ms > 0:
        low = min(low, 100 * (1 - projection.projected_ms / times.fastest_ms))
    if times.traced_ms > 0:
        high = max(high, 100 * (1 - projection.projected_ms / times.traced_ms))
    builder.add_projection(replace(projection, low_pct=low, high_pct=high))


def _unknown_gain(work: Work) -> Reason | None:
    """Why the gain is unknown, whatever the figures are."""
    if work.trace.damage.cut:
        return Reason("file_cut")
    if (work.coverage_pct or 0.0) < _MIN_COVERAGE_PCT:
        return Reason("launches_unknown")
    return None


def _central(used: Ints, most: int) -> Ints:
    """At most `most` of the rows, from their middle."""
    first = max(len(used) - most, 0) // 2
    return used[first : first + most]


def _project_from_idle(timeline: Timeline, predicted: Prediction, iteration: float) -> Projection:
    """Without a simulation: launches and the gaps between queued kernels go, the waits stay."""
    idle = timeline.iteration_idle
    waits = sum(median_or_none(part) or 0.0 for part in (idle.data, idle.sync, idle.unattributed))
    busy, step_busy = median_or_none(timeline.iteration_busy), median_or_none(timeline.step_busy)
    rest = (busy or 0.0) - (step_busy or 0.0)

    def removable(replay_ms: float) -> float:
        return 100 * (1 - (replay_ms + waits + rest) / iteration)

    return Projection(
        iteration,
        predicted.ms + waits + rest,
        low_pct=removable(predicted.high_ms),
        high_pct=removable(predicted.low_ms),
        source="predicted",
    )
