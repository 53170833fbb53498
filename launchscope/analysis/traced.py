"""A trace by itself -> Profile: what somebody else's file allows to say. No verdict yet.

There is no untraced timing here, and recording stretches the host. From each recorded
operator and call inside exposed launch time the profiler's usual cost is taken off, and the
bounds of the gain span what that cost was seen to be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from launchscope.analysis.measured import Measured, Value, from_trace, middle
from launchscope.analysis.metrics import UNITS, registry
from launchscope.analysis.replay_model.capturable import made_capturable
from launchscope.analysis.replay_model.fit import Projector, against_time
from launchscope.analysis.replay_model.prediction import Prediction, predict, step_work
from launchscope.analysis.steps.steps import Steps, steps_of
from launchscope.analysis.steps.whole_steps import whole_steps
from launchscope.analysis.timeline.accounting import Accounting, account
from launchscope.analysis.timeline.kernels import kernel_table
from launchscope.analysis.timeline.timeline import Timeline, build_timeline
from launchscope.analysis.timeline.work import Work, gather
from launchscope.analysis.timing import Floats, StepTimes
from launchscope.errors import InputError
from launchscope.model import (
    Environment,
    Facts,
    Metric,
    Profile,
    Replay,
    Shapes,
    Target,
    joined_facts,
)
from launchscope.parser import columns as c
from launchscope.parser.launches import Launches, find_launches
from launchscope.parser.trace import Ints, Trace, ints

__all__ = ["UNNAMED_DEVICE", "profile_of_trace"]

# Host time that recording adds to an operator or call, in us: typical, least and most of the
# 14 recorded samples (their traced against their untimed iterations, H200 host, torch 2.11).
RECORDING_US = (2.2, 1.2, 4.8)
# And at most this share of the exposed time: typically, and in the recording in which it was
# largest.
_MOST_SHARE = (0.55, 0.68)
UNNAMED_DEVICE = "a GPU the trace does not name"
_PROCESS = 0xFFFFFF  # nsys puts the machine above the process's own number
# Of the device work: with less, whose fault idle time is is not known.
_LEAST_JOINED_PCT = 50.0
# Longer iterations are not simulated event by event.
_MOST_LAUNCHES = 20_000
_SIMULATED = 20_000  # launches that are simulated, of all steps together


@dataclass(frozen=True)
class _Times:
    """Milliseconds per used iteration with the profiler's typical cost taken off."""

    steps: StepTimes
    traced_ms: float  # iteration as it stands in the file
    fastest_ms: float  # iteration if recording cost the most it was seen to cost


def profile_of_trace(
    trace: Trace,
    name: str,
    *,
    threshold_pct: float = 15.0,
    expected_steps: int | None = None,
    step_from: str = "auto",
    step_range: str | None = None,
) -> Profile:
    """The Profile of one trace file, mode "trace"; every metric key present, None if unknown.

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
        if not len(joined.calls):
            raise InputError(
                f"none of the {len(trace.activities):,} kernels and copies in the trace has a call "
                f"that launched it{_reused(joined)}, so they belong to no step",
                hint="--step-from none reports on the whole span",
            )
        raise InputError(
            "the steps of the trace launched no work on a GPU",
            hint="--step-from none reports on the whole span",
        )
    timeline = build_timeline(work)
    accounts = account(work)
    traced = step_work(work)
    unknown = _unknown_gain(work)
    optimizer = made_capturable(work)
    predicted = predict(traced, optimizer) if traced is not None and unknown is None else None
    times = _times(work, timeline)
    parts = [
        _timed(times, work),
        from_trace(work, timeline, accounts, predicted),
        against_time(work, timeline, accounts, times.steps),
        _projected(work, timeline, predicted, accounts, times),
    ]
    metrics: dict[str, Any] = {}
    notes = [*steps.notes, *_notes(trace, joined, steps, work, times)]
    if predicted is not None and optimizer.added_kernels:
        notes.append(
            f"the predicted replay holds {optimizer.added_kernels:,} kernels that the trace does "
            f"not: a capture needs capturable=True of the optimizer, for "
            f"{optimizer.tensors:,} parameters"
        )
    for part in parts:
        metrics |= part.metrics
        notes += part.notes
    facts = replace(
        joined_facts(part.facts for part in parts),
        legacy_stream_kernels=None,  # nobody put the steps on a stream of their own
        legacy_kernels_names=None,
        gain_unknown=unknown,
        optimizer_classes=work.optimizers or None,
        rank=trace.rank,
    )
    inference = work.one_thread and not work.optimizers
    boundary = replace(steps.boundary, scope="forward") if inference else steps.boundary
    return Profile(
        target=Target("trace", name),
        environment=Environment(
            device=trace.device_name or UNNAMED_DEVICE,
            world_size=trace.world_size or 1,
        ),
        mode="trace",
        step=boundary,
        metrics=registry(metrics),
        shapes=Shapes(None),
        blockers=(),
        replay=Replay("skipped", "a trace holds no replay of the step"),
        kernels=kernel_table(work),
        notes=tuple(dict.fromkeys(notes)),
        facts=facts,
        threshold_pct=threshold_pct,
        expected_steps=expected_steps,
    )


# ----------------------------------------------------------------------------- times


def _times(work: Work, timeline: Timeline) -> _Times:
    """Times of the used iterations, the profiler's own part taken off where it shows.

    It shows only in idle time that the host's own work explains; where the GPU is busy or the
    host waits, a slower host costs nothing.
    """
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
    # Of the whole span the totals stand as they are in the file; only the bounds allow for it.
    typical = 0.0 if windows.whole else RECORDING_US[0] / 1e3
    most = RECORDING_US[2] / 1e3
    host = (windows.end - windows.step_begin)[used] / 1e6
    between = (windows.step_begin - windows.begin)[used] / 1e6
    known = iteration > 0  # an iteration without device work has no time on the GPU's clock
    cut = np.minimum(typical * events, _MOST_SHARE[0] * exposed)
    most_cut = np.minimum(most * events, _MOST_SHARE[1] * exposed)
    return _Times(
        steps=StepTimes(
            iteration=(iteration - cut)[known],
            host_iteration=np.maximum(host + between - typical * events, 0.3 * (host + between)),
            step=(step - np.minimum(typical * inside, _MOST_SHARE[0] * step_exposed))[known],
            host=np.maximum(host - typical * inside, 0.3 * host),
            host_between=np.maximum(between - typical * (events - inside), 0.3 * between),
            wall_check_pct=None,
            steps=len(used),
        ),
        traced_ms=middle(iteration[known]) or 0.0,
        fastest_ms=middle((iteration - most_cut)[known]) or 0.0,
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


def _timed(times: _Times, work: Work) -> Measured:
    steps = times.steps

    def samples(key: str, values: Floats) -> Metric:
        return Metric.of_samples([float(value) for value in values], UNITS[key])

    metrics: dict[str, Value] = {
        "iteration_ms": samples("iteration_ms", steps.iteration),
        "host_iteration_ms": samples("host_iteration_ms", steps.host_iteration),
        "step_ms": samples("step_ms", steps.step),
        "step_p95_ms": float(np.percentile(steps.step, 95)) if len(steps.step) else None,
        "host_ms": samples("host_ms", steps.host),
    }
    return Measured(metrics)


def _notes(trace: Trace, joined: Launches, steps: Steps, work: Work, times: _Times) -> list[str]:
    said = []
    if joined.reused:
        said.append(
            f"{joined.reused:,} kernels and copies were given to no launch{_reused(joined)}"
        )
    if trace.damage.any:
        said.append(f"the file is damaged: {trace.damage.text}")
    iteration = middle(times.steps.iteration)
    if iteration is not None and times.traced_ms > 1.005 * iteration:
        typical, least, most = RECORDING_US
        said.append(
            f"the traced iteration takes {times.traced_ms:.3g} ms; {typical} us were taken off for "
            f"each operator and call recorded while the GPU waited ({least} to {most} us were seen "
            "on an H200 host), and the bounds allow for it"
        )
    early = ints(joined.calls, c.START) - ints(joined.calls, c.FIRST)
    if (early > 0).any():
        said.append(
            f"{int((early > 0).sum()):,} launches reached the GPU up to {early.max() / 1e3:.3g} us "
            "before they were called: the clocks of host and GPU disagree, and idle time and queue "
            "delay by as much"
        )
    if trace.with_stack:
        said.append(
            "Python stacks were recorded with the trace, which slows the host further: the gain is "
            "an upper limit"
        )
    pids = trace.calls[c.PID].nunique()
    if pids > 1 and not steps.iterations.whole:
        said.append(
            f"{pids} processes are in the trace; figures are those of process "
            f"{(steps.iterations.pid or 0) & _PROCESS}"
        )
    if pids > 1 and steps.iterations.whole:
        said.append(f"{pids} processes are in the trace; figures are those of all of them together")
    return said


def _reused(joined: Launches) -> str:
    if not joined.reused:
        return ""
    return (
        f" (of {joined.reused:,} the correlation id stands for several calls of one process, as in "
        "merged files of processes with the same number)"
    )


# -------------------------------------------------------------------------- the gain


def _projected(
    work: Work,
    timeline: Timeline,
    predicted: Prediction | None,
    accounts: Accounting,
    times: _Times,
) -> Measured:
    """The iteration with a replay, its bounds widened by what recording may have cost."""
    iteration = middle(times.steps.iteration)
    if predicted is None or not iteration or not len(times.steps.step):
        return Measured()
    used = work.iterations.used
    per_step = np.isin(work.iteration, used).sum() / max(len(used), 1)
    if work.iterations.whole or per_step > _MOST_LAUNCHES:
        found = _by_idle(timeline, predicted, iteration)
    else:
        # The model's loop is made of these; more of them would say the same again.
        few = _middle(used, int(max(6, _SIMULATED // max(per_step, 1))))
        part = replace(work, iterations=replace(work.iterations, used=few))
        found = Projector(part, predicted, accounts, times.steps)(None, None, True)
    whole = found.metrics.get("projected_iteration_ms")
    if not isinstance(whole, float):
        return found
    removable = found.metrics["removable_pct"]
    assert isinstance(removable, Metric)
    low, high = removable.low or 0.0, removable.high or 0.0
    # A projection keeps the host's work between steps, which shrinks with the iteration.
    fastest = 100 * (1 - whole / times.fastest_ms) if times.fastest_ms > 0 else low
    slowest = 100 * (1 - whole / times.traced_ms) if times.traced_ms > 0 else high
    wider = replace(removable, low=min(low, fastest), high=max(high, slowest))
    return replace(found, metrics={**found.metrics, "removable_pct": wider})


def _unknown_gain(work: Work) -> str | None:
    """Why no gain can be told, whatever the figures are."""
    if work.trace.damage.cut:
        return (
            "the file is cut and may lack device work (counts and busy times are lower limits, "
            "idle time is an upper one)"
        )
    if (work.coverage_pct or 0.0) < _LEAST_JOINED_PCT:
        return "too little of the device work could be joined to the call that launched it"
    return None


def _middle(used: Ints, most: int) -> Ints:
    """At most so many of the rows, from their middle."""
    first = max(len(used) - most, 0) // 2
    return used[first : first + most]


def _by_idle(timeline: Timeline, predicted: Prediction, iteration: float) -> Measured:
    """Without a simulation: launching and the gaps between queued kernels go, the waits stay."""
    idle = timeline.iteration_idle
    parts = (idle.data, idle.sync, idle.unattributed)
    waits = sum(middle(part) or 0.0 for part in parts)
    rest = (middle(timeline.iteration_busy) or 0.0) - (middle(timeline.step_busy) or 0.0)

    def removed(replay_ms: float) -> float:
        return 100 * (1 - (replay_ms + waits + rest) / iteration)

    whole = predicted.ms + waits + rest
    metrics: dict[str, Value] = {
        "projected_iteration_ms": whole,
        "iteration_speedup": iteration / whole if whole > 0 else None,
        "removable_pct": Metric(
            removed(predicted.ms),
            "%",
            low=removed(predicted.high_ms),
            high=removed(predicted.low_ms),
        ),
    }
    return Measured(metrics, Facts(replay_ms_source="predicted"))
