"""What replaying the step takes off the iteration, and after how many steps the capture pays."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np

from launchscope.analysis.replay_model.prediction import Prediction
from launchscope.analysis.replay_model.projection import Model, ReplayCost, fit, host_replay_us
from launchscope.analysis.replay_model.replay import MeasuredReplay
from launchscope.analysis.timeline.accounting import Accounting
from launchscope.analysis.timeline.work import Work
from launchscope.analysis.timing import BUSY_TOLERANCE_PCT, StepTimes
from launchscope.model import HostInput, ReplayResult, TensorShape

# Inputs to copy in per step where the recording does not say: a batch and its targets.
_USUAL_INPUTS = 2
# The driver stages a pageable copy up to this size and returns at once; the call of a larger one
# lasts until the GPU has taken most of it. The recording says nothing of pinned memory.
STAGED_BYTES = 64 * 1024


@dataclass(frozen=True)
class Projection:
    """The iteration with its step replayed.

    `low_pct` and `high_pct` bound the share of the iteration that a replay removes; `step_pct` is
    the share of the step, None where the replay is only a part of it.
    """

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

    @classmethod
    def of(
        cls,
        work: Work,
        accounts: Accounting,
        predicted: Prediction | None,
        times: StepTimes,
        host_inputs: tuple[HostInput, ...] = (),
    ) -> Projector | None:
        """None where there is nothing to simulate, or no time to compare the simulation with."""
        iteration, step = times.iteration_ms, times.step_ms
        if predicted is None or iteration is None or step is None:
            return None
        model = fit(work, times, accounts.profiler_us)
        if model is None:
            return None
        operations = float(np.median(accounts.operations))
        return cls(model, times, iteration, step, predicted, operations, moved_inputs(host_inputs))

    @property
    def error_pct(self) -> float:
        """By how much the simulation of the unchanged loop misses the measured iteration."""
        return 100 * (self.model.iteration_ms / self.iteration_ms - 1)

    @property
    def sync_cost_ms(self) -> float:
        """What the iteration takes longer for its synchronizations."""
        return max(self.model.iteration_ms - self.model.without_waits_ms(), 0.0)

    def project(
        self, result: ReplayResult | None, replay: MeasuredReplay | None
    ) -> Projection | None:
        """The iteration with the measured replay, or else with the predicted one.

        The bounds combine the slowest burst, or the prediction's upper bound, with the fastest
        usual iteration, and the reverse. A replay of forward and backward leaves the rest of the
        step as it is; None for a smaller part of the step.
        """
        keeps_rest = False
        timed: MeasuredReplay | Prediction = replay or self.predicted
        if replay is not None and not replay.whole_step:
            keeps_rest = replay.result.scope == "forward_backward"
            if not keeps_rest:
                return None
        host = host_replay_us(self.operations)
        if result is not None and result.host_replay_us:
            host = median(result.host_replay_us)
        inputs, size = _USUAL_INPUTS, 0
        if result is not None and result.input_tensors is not None:
            inputs, size = result.input_tensors, result.input_bytes or 0

        def projected(replay_ms: float) -> float:
            cost = ReplayCost(replay_ms, host, inputs, size, keeps_rest, self.moved_inputs)
            return self.model.replayed_ms(cost)

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

    def removable_pct(self, replay: MeasuredReplay) -> float | None:
        """The share of the iteration that this replay removes; None if it cannot be projected."""
        projection = self.project(replay.result, replay)
        return None if projection is None else projection.removable_pct


def project_from_bursts(times: StepTimes, replay: MeasuredReplay) -> Projection | None:
    """The iteration where no trace says what lies between the steps, or only one that tracing
    stretched.

    The replay takes off the iteration what it takes off the step: a host that is behind, or waits
    between steps, would change that. Bounds as in `Projector.project`. None for a replay of a
    part of the step.
    """
    iteration, step = times.iteration_ms, times.step_ms
    if iteration is None or step is None or iteration <= 0 or not replay.whole_step:
        return None
    fast, slow = _usual_iterations(times, replay)
    whole = max(iteration - (step - replay.ms), replay.ms)
    most = max(iteration - (step - replay.high_ms), whole)
    least = max(min(iteration - (step - replay.low_ms), whole), 0.0)
    return Projection(
        iteration,
        whole,
        low_pct=100 * (1 - most / fast),
        high_pct=100 * (1 - least / slow),
        source="measured",
        step_pct=100 * (1 - replay.ms / step) if step > 0 else None,
        break_even_steps=_break_even(replay, iteration - whole),
    )


def timed_again(times: StepTimes, replay: MeasuredReplay) -> bool:
    """Whether the eager steps between the replays took as long as those of the timing pass.

    Then the steps did not change in between, and a trace that contradicts them was disturbed by
    its own recording. Unknown, so False, where the capture changed flags.
    """
    step, eager = times.step_ms, replay.unchanged_eager_ms
    if not step or eager is None:
        return False
    return 100 * abs(eager / step - 1) <= BUSY_TOLERANCE_PCT


def moved_inputs(inputs: tuple[HostInput, ...]) -> int:
    """How many host tensors the step copies to the device with `x.to(device)`.

    With a graph such a copy goes straight to the input's fixed address. 0 unless all of them are
    small enough not to wait.
    """
    return len(inputs) if all(_bytes(x.tensor) <= STAGED_BYTES for x in inputs) else 0


def _bytes(tensor: TensorShape) -> int:
    bits = re.search(r"\d+", tensor.dtype)  # of float32, bfloat16, float8_e5m2
    return math.prod(tensor.dims) * (int(bits[0]) // 8 if bits else 1)


def _usual_iterations(times: StepTimes, replay: MeasuredReplay | None) -> tuple[float, float]:
    """How fast and how slow an iteration usually is.

    The quartiles, widened to what other moments of the run say: timing windows that the quartiles
    are not of, and the eager bursts between the replays. On a shared host these differ by more
    than the quartiles of any one moment.
    """
    quartiles = (float(ms) for ms in np.percentile(times.iteration, (25, 75)))
    fast, *_, slow = sorted((*quartiles, *(times.windows_ms if times.unsteady else ())))
    if replay is not None and replay.whole_step and replay.unchanged_eager_ms is not None:
        between = (times.iteration_ms or 0.0) - (times.step_ms or 0.0)
        later = replay.unchanged_eager_ms + max(between, 0.0)
        fast, slow = min(fast, later), max(slow, later)
    return fast, slow


def _break_even(replay: MeasuredReplay | None, saved_ms: float) -> int | None:
    """Steps after which a replay has saved what its capture took; None if that is unknown."""
    if replay is None:
        return None
    result = replay.result
    spent = [result.capture_ms, result.instantiate_ms, result.first_replay_ms]
    known = [ms for ms in spent if ms is not None]
    return int(np.ceil(sum(known) / saved_ms)) if known and saved_ms > 0 else None
