"""What replaying the step takes off the iteration, and after how many steps the capture pays."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from statistics import median
from typing import Literal

import numpy as np

from launchscope.analysis.replay_model.graphed_call import graphed_call_us
from launchscope.analysis.replay_model.prediction import Optimizer, Prediction, predict, step_work
from launchscope.analysis.replay_model.replay import MeasuredReplay, measured_replay
from launchscope.analysis.replay_model.simulation import REPLAY_NODE_US, REPLAY_US, Model, fit
from launchscope.analysis.timeline.accounting import Accounting, account
from launchscope.analysis.timeline.timeline import Timeline, build_timeline
from launchscope.analysis.timeline.work import Work
from launchscope.analysis.timing import StepTimes
from launchscope.frozen import dataclass
from launchscope.model import HostInput, InspectResult, Recording, ReplayResult, ScopeReplay
from launchscope.parser.trace import median_of, quantile_of

# Inputs to copy in per step where the recording does not say: a batch and its targets.
_USUAL_INPUTS = 2
# The driver stages a pageable copy up to this size and returns at once; the call of a larger one
# lasts until the GPU has taken most of it. The recording does not say what memory is pinned.
STAGED_BYTES = 64 * 1024


@dataclass(frozen=True)
class TracedSteps:
    """What the used steps of a trace show."""

    work: Work
    timeline: Timeline
    accounts: Accounting
    predicted: Prediction | None

    @classmethod
    def of(
        cls,
        work: Work,
        optimizer: Optimizer,
        profiler_us: float = 0.0,
        *,
        pauses: bool = False,
    ) -> TracedSteps:
        """`optimizer` is what a capture changes in the optimizers, `pauses` is that of
        `build_timeline`."""
        device_work, timeline, predicted = step_work(work), build_timeline(work, pauses), None
        if device_work is not None:
            stays = median_of(timeline.step_idle.kept)
            device_work = replace(device_work, stalled_ms=stays)
            predicted = predict(device_work, optimizer)
        return cls(work, timeline, account(work, profiler_us), predicted)


@dataclass(frozen=True)
class Projection:
    """The iteration with its step replayed, and bounds of the share that this removes. `step_pct`
    is the share of the step, None where the replay is only a part of it."""

    eager_ms: float
    projected_ms: float
    low_pct: float
    high_pct: float
    source: Literal["measured", "predicted"]
    step_pct: float | None = None
    break_even_steps: int | None = None

    @property
    def removable_pct(self) -> float:
        return 100 * (1 - self.projected_ms / self.eager_ms)


@dataclass(frozen=True)
class Projector:
    """Projects the iteration for one replay after another by simulating the traced loop."""

    model: Model
    times: StepTimes
    iteration_ms: float
    step_ms: float
    predicted: Prediction
    operations: float  # kernels, copies and sets of a step
    moved_inputs: int
    call_us: float = 0.0  # host time of a call of `graphed` beside its replay

    @classmethod
    def of(
        cls, traced: TracedSteps, times: StepTimes, inspected: InspectResult | None = None
    ) -> Projector | None:
        """None where there is nothing to simulate, or no time to compare the simulation with."""
        iteration, step, predicted = times.iteration_ms, times.step_ms, traced.predicted
        if predicted is None or not iteration or not step:  # 0 where the clocks disagree
            return None
        model = fit(traced.work, times, traced.accounts.profiler_us)
        if model is None:
            return None
        operations = median_of(traced.accounts.operations)
        moved = moved_inputs(inspected.host_inputs if inspected else ())
        call_us = graphed_call_us(inspected)
        return cls(model, times, iteration, step, predicted, operations, moved, call_us)

    def project(
        self, result: ReplayResult | None = None, replay: MeasuredReplay | None = None
    ) -> Projection | None:
        """The iteration with the measured replay, or else with the predicted one.

        The lower bound combines the slowest replay with the fastest usual iteration, the upper one
        the reverse. After forward and backward the rest of the step stays; None for a smaller part.
        """
        keeps_rest = replay is not None and not replay.whole_step
        if keeps_rest and replay is not None and replay.result.scope != "forward_backward":
            return None
        timed: MeasuredReplay | Prediction = replay or self.predicted
        host = REPLAY_US + REPLAY_NODE_US * self.operations
        inputs, size = _USUAL_INPUTS, 0
        if result is not None and result.host_replay_us:
            host = median(result.host_replay_us)
        if result is not None and result.input_tensors is not None:
            inputs, size = result.input_tensors, result.input_bytes or 0

        def projected(replay_ms: float) -> float:
            simulated = self.model.replayed_ms(
                replay_ms, host + self.call_us, inputs, size, keeps_rest, self.moved_inputs
            )
            return max(simulated, self.times.loading_ms)

        whole = projected(timed.ms)
        fast, slow = _usual_iterations(self.times, replay)
        return Projection(
            self.iteration_ms,
            whole,
            low_pct=100 * (1 - max(projected(timed.high_ms), whole) / fast),
            high_pct=100 * (1 - min(projected(timed.low_ms), whole) / slow),
            source="predicted" if replay is None else "measured",
            step_pct=None if keeps_rest else 100 * (1 - timed.ms / self.step_ms),
            break_even_steps=_break_even(replay, self.iteration_ms - whole),
        )

    def with_waits(self, simulated: Projection, data_ms: float) -> Projection:
        """This projection where nobody takes the waits out of the step, so that graphs replay the
        pieces between them. What an iteration without the waits saves stays within the bounds.

        `data_ms` of the predicted replay is idle time in which the host loads data. The host may
        load it while the GPU works, so a faster iteration in pieces widens the bounds, too.
        """
        pieces = self.model.in_pieces_ms(self.predicted.ms - data_ms, _USUAL_INPUTS)
        whole = simulated.projected_ms
        longer = min(pieces, max(self.iteration_ms, whole)) - whole  # eager is possible, too
        share = 100 * longer / simulated.eager_ms
        return replace(
            simulated,
            projected_ms=whole + max(longer, 0.0),
            low_pct=simulated.low_pct - max(share, 0.0),
            high_pct=simulated.high_pct - min(share, 0.0),
        )


def project_from_bursts(times: StepTimes, replay: MeasuredReplay) -> Projection | None:
    """The iteration where no trace shows the work between steps, or only one that contradicts the
    timings. None for a part of the step.

    The replay takes off the iteration what it takes off the step, if no host is behind or waits.
    Eager steps beside the replays that took another time than those of the timing pass widen the
    bounds.
    """
    iteration, step = times.iteration_ms, times.step_ms
    if iteration is None or step is None or iteration <= 0 or not replay.whole_step:
        return None
    fast, slow = _usual_iterations(times, replay)
    whole = max(iteration - (step - replay.ms), replay.ms, times.loading_ms)
    most = max(iteration - (step - replay.high_ms), whole)
    least = max(min(iteration - (step - replay.low_ms), whole), times.loading_ms)
    return Projection(
        iteration,
        whole,
        low_pct=100 * (1 - most / fast),
        high_pct=100 * (1 - least / slow),
        source="measured",
        step_pct=100 * (1 - replay.ms / step) if step > 0 else None,
        break_even_steps=_break_even(replay, iteration - whole),
    )


def scope_replays(
    recording: Recording, iteration_ms: float | None, projector: Projector | None
) -> tuple[ScopeReplay, ...]:
    """Every smaller scope that was tried. Where its iteration cannot be projected, the share
    removed is what the part of the step saves."""
    found = []
    for result in filter(None, (recording.scope_forward_backward, recording.scope_forward)):
        tried = ScopeReplay(result.scope, result.status, result.reason)
        replay = measured_replay(result)
        if replay is None or not replay.eager_ms:
            found.append(tried)
            continue
        eager = median(replay.eager_ms)
        projection = projector.project(result, replay) if projector is not None else None
        share = 100.0 * (eager - replay.ms) / iteration_ms if iteration_ms else None
        share = projection.removable_pct if projection is not None else share
        found.append(replace(tried, eager_ms=eager, replay_ms=replay.ms, removable_pct=share))
    return tuple(found)


def moved_inputs(inputs: tuple[HostInput, ...]) -> int:
    """How many host tensors the step copies to the device with `x.to(device)`, as a graph's loop
    would to the input's address; 0 unless all of them are small enough not to wait."""
    for tensor in (entry.tensor for entry in inputs):
        bits = re.search(r"\d+", tensor.dtype)  # of float32, bfloat16, float8_e5m2
        if math.prod(tensor.dims) * (int(bits[0]) // 8 if bits else 1) > STAGED_BYTES:
            return 0
    return len(inputs)


def _usual_iterations(times: StepTimes, replay: MeasuredReplay | None) -> tuple[float, float]:
    """How fast and how slow an iteration usually is: the quartiles, extended to the other timing
    windows and the eager bursts, which on a shared host differ by more. Where the data loader is
    the limit, its batches come in bursts, with a replay as without: none is usual but the median.
    """
    if times.iteration_ms is not None and times.loading_ms >= times.iteration_ms > 0:
        return times.iteration_ms, times.iteration_ms
    quartiles = (quantile_of(times.iteration, share) for share in (0.25, 0.75))
    moments = [*quartiles, *(times.windows_ms if times.unsteady else ())]
    if replay is not None and replay.whole_step and replay.unchanged_eager_ms is not None:
        between = (times.iteration_ms or 0.0) - (times.step_ms or 0.0)
        moments.append(replay.unchanged_eager_ms + max(between, 0.0))
    return min(moments), max(moments)


def _break_even(replay: MeasuredReplay | None, saved_ms: float) -> int | None:
    """Steps after which a replay has saved what its capture took; None if that is unknown."""
    if replay is None:
        return None
    result = replay.result
    spent = [result.capture_ms, result.instantiate_ms, result.first_replay_ms]
    known = [ms for ms in spent if ms is not None]
    return int(np.ceil(sum(known) / saved_ms)) if known and saved_ms > 0 else None
