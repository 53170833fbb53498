"""What replaying the step takes off the iteration, and after how many steps the capture pays."""

from __future__ import annotations

from statistics import median

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from launchscope.analysis.replay_model.prediction import Optimizer, Prediction, predict, step_work
from launchscope.analysis.replay_model.replay import MeasuredReplay, measured_replay
from launchscope.analysis.timeline.accounting import Accounting, account
from launchscope.analysis.timeline.timeline import Timeline, build_timeline, kept
from launchscope.analysis.timeline.work import Work
from launchscope.analysis.timing import StepTimes, median_or_none
from launchscope.model import InspectResult, IterationSource, LoopResult, Recording, ScopeReplay
from launchscope.model.medians import median_interval
from launchscope.parser.trace import median_of, quantile_of

# Of the step's operations. With more that the script runs again beside the graph, the windows are
# not those of a loop that a person would write.
_MOST_OWN_SHARE = 0.10


class TracedSteps(Struct, frozen=True):
    """What the used steps of a trace show."""

    work: Work
    timeline: Timeline
    accounts: Accounting
    predicted: Prediction | None

    @classmethod
    def of(cls, work: Work, optimizer: Optimizer, profiler_us: float = 0.0) -> TracedSteps:
        """`optimizer` is what a capture changes in the optimizers."""
        device_work, timeline, predicted = step_work(work), build_timeline(work), None
        if device_work is not None:
            stays = median_of(kept(timeline.step_idle))
            device_work = replace(device_work, stalled_ms=stays)
            predicted = predict(device_work, optimizer)
        return cls(work, timeline, account(work, profiler_us), predicted)


class Projection(Struct, frozen=True):
    """The iteration with its step replayed, and bounds of the share that this removes. `step_pct`
    is the share of the step, None where the replay is only a part of it."""

    eager_ms: float
    replayed_ms: float
    low_pct: float
    high_pct: float
    source: IterationSource
    step_pct: float | None = None
    break_even_steps: int | None = None
    samples: tuple[float, ...] = ()  # of `replayed_ms`

    @property
    def removable_pct(self) -> float:
        return 100 * (1 - self.replayed_ms / self.eager_ms)


def measured_loop(recording: Recording) -> LoopResult | None:
    """The windows of the script's own loop, where they show a loop with a graph in it."""
    loop, inspected = recording.replayed_loop, recording.inspect
    if loop is None or loop.status != "measured" or min(loop.eager_ms, default=0.0) <= 0:
        return None
    return loop if _own_share(loop, inspected) < _MOST_OWN_SHARE else None


def _own_share(loop: LoopResult, inspected: InspectResult | None) -> float:
    """How many of the step's operations the script runs again beside the graph."""
    if not loop.own_ops or inspected is None or not inspected.device_ops:
        return 0.0
    return loop.own_ops / max(median(inspected.device_ops), 1)


def project_from_windows(
    loop: LoopResult,
    inspected: InspectResult | None,
    times: StepTimes,
    replay: MeasuredReplay,
    busy_between_ms: float,
) -> Projection:
    """The iteration of the windows with replays. `times` has that of the eager windows between
    them, and the bounds are those of the median share over pairs of neighbors.

    Operations that the script runs again beside the graph take time of the host alone, and none
    where the GPU or the data loader is the limit.
    """
    again_ms = _own_share(loop, inspected) * (median_or_none(times.host) or 0.0)
    limit = max(replay.ms + busy_between_ms, times.loading_ms)
    replayed = tuple(max(ms - again_ms, min(ms, limit)) for ms in loop.replayed_ms)
    eager, whole = median(loop.eager_ms), median(replayed)
    pairs = zip(loop.eager_ms, replayed)
    low, high = median_interval([100 * (1 - after / before) for before, after in pairs])
    share = 100 * (1 - whole / eager)
    return Projection(
        eager,
        whole,
        low_pct=min(low, share),
        high_pct=max(high, share),
        source="measured",
        step_pct=100 * (1 - replay.ms / times.step_ms) if times.step_ms else None,
        break_even_steps=_break_even(replay, eager - whole),
        samples=replayed,
    )


def project_by_subtraction(
    times: StepTimes,
    replay: MeasuredReplay | Prediction,
    busy_between_ms: float = 0.0,
    *,
    overlaps: bool = True,
) -> Projection | None:
    """The eager iteration less what the replay takes off the step, or off the part of it that it
    holds; never below the time that the GPU or the data loader need by themselves.

    The bounds are those of the timings. Where nothing waits between steps, the host may do its
    work there while the GPU replays (`overlaps`), which the upper bound allows for.
    """
    measured = replay if isinstance(replay, MeasuredReplay) else None
    is_part = measured is not None and not measured.whole_step
    iteration = times.iteration_ms
    eager = measured.eager if measured is not None and is_part else times.step_ms
    if not iteration or not eager:
        return None

    def left(replay_ms: float) -> float:
        least = max(replay_ms + busy_between_ms, times.loading_ms)
        return max(iteration - (eager - replay_ms), least)

    whole, least = left(replay.ms), min(left(replay.low_ms), left(replay.ms))
    if overlaps and len(times.host_between):
        limit = max(replay.low_ms + busy_between_ms, times.loading_ms)
        least = min(least, max(limit, median_of(times.host_between)))
    fast, slow = _usual_iterations(times, measured)
    return Projection(
        iteration,
        whole,
        low_pct=100 * (1 - max(left(replay.high_ms), whole) / fast),
        high_pct=100 * (1 - least / slow),
        source="predicted" if measured is None else "subtracted",
        step_pct=None if is_part else 100 * (1 - replay.ms / eager),
        break_even_steps=_break_even(measured, iteration - whole),
    )


def scope_replays(recording: Recording, iteration_ms: float | None) -> tuple[ScopeReplay, ...]:
    """Every smaller scope that was tried. The share removed is what the part of the step saves."""
    found = []
    for result in filter(None, (recording.scope_forward_backward, recording.scope_forward)):
        tried = ScopeReplay(result.scope, result.status, result.reason)
        replay = measured_replay(result)
        if replay is not None and replay.eager is not None:
            eager = replay.eager
            share = 100.0 * (eager - replay.ms) / iteration_ms if iteration_ms else None
            tried = replace(tried, eager_ms=eager, replay_ms=replay.ms, removable_pct=share)
        found.append(tried)
    return tuple(found)


def _usual_iterations(times: StepTimes, replay: MeasuredReplay | None) -> tuple[float, float]:
    """How fast and how slow an iteration usually is: the quartiles, extended to the eager bursts,
    which on a shared host differ by more. Where the data loader is the limit, its batches come in
    bursts, with a replay as without: none is usual but the median.
    """
    if times.iteration_ms is not None and times.loading_ms >= times.iteration_ms > 0:
        return times.iteration_ms, times.iteration_ms
    quartiles = (quantile_of(times.iteration, share) for share in (0.25, 0.75))
    moments = [*quartiles]
    # Under other flags it is not the person's own step.
    if replay is not None and replay.whole_step and replay.eager and not replay.result.changes:
        between = (times.iteration_ms or 0.0) - (times.step_ms or 0.0)
        moments.append(replay.eager + max(between, 0.0))
    return min(moments), max(moments)


def _break_even(replay: MeasuredReplay | None, saved_ms: float) -> int | None:
    """Steps after which a replay has saved what its capture took; None if that is unknown."""
    if replay is None:
        return None
    result = replay.result
    spent = [result.capture_ms, result.instantiate_ms, result.first_replay_ms]
    known = [ms for ms in spent if ms is not None]
    return int(np.ceil(sum(known) / saved_ms)) if known and saved_ms > 0 else None
