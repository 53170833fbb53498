"""Joins what a trace says with the times of the same steps: shares, idle time, the projection."""

from __future__ import annotations

import math
import re

import numpy as np

from launchscope.analysis.measured import Measured, from_idle, middle
from launchscope.analysis.replay_model.gain import project
from launchscope.analysis.replay_model.prediction import Prediction
from launchscope.analysis.replay_model.projection import fit
from launchscope.analysis.replay_model.replay import ReplayTimes, replay_times
from launchscope.analysis.timeline.accounting import Accounting
from launchscope.analysis.timeline.timeline import Timeline
from launchscope.analysis.timeline.work import Work
from launchscope.analysis.timing import StepTimes
from launchscope.model import Metric, ReplayResult, StepInput, StepSource

__all__ = ["Projector", "against_time", "moved_inputs"]

# A copy of more than this from pageable memory is not staged at once: its call lasts until the
# GPU has come to it and taken most of it. Of pinned memory the recording says nothing.
STAGED_BYTES = 64 * 1024


def against_time(
    work: Work, timeline: Timeline, accounts: Accounting, times: StepTimes | None
) -> Measured:
    """Shares of the trace's figures in the untraced times."""
    if times is None:
        return Measured()
    step, host = middle(times.step), middle(times.host)
    between = 1.0
    used = work.iterations.used
    traced = float(np.median((work.iterations.step_begin - work.iterations.begin)[used])) / 1e6
    if len(times.host_between) and traced > 0:
        between = min(1.0, float(np.median(times.host_between)) / traced)
    idle = from_idle(timeline, step, middle(times.iteration), between)
    metrics = dict(idle.metrics)
    api, busy = middle(accounts.api_ms), middle(timeline.step_busy)
    if step and api is not None:
        metrics["launch_share_pct"] = 100 * api / step
    if busy is not None and host is not None:
        own = max(host - (middle(accounts.blocked_ms) or 0.0), 0.0)
        metrics["hdbi"] = busy / (busy + own) if busy + own > 0 else None
    return Measured(metrics, idle.facts, idle.notes)


class Projector:
    """Projects the iteration for one replay after another; the model is fitted once."""

    def __init__(
        self,
        work: Work,
        predicted: Prediction | None,
        accounts: Accounting,
        times: StepTimes,
        source: StepSource | None = None,
    ):
        self._moved_inputs = moved_inputs(source)
        self._model = fit(work, times, accounts.profiler_us)
        self._times = times
        self._predicted = predicted
        self._operations = float(np.median(accounts.operations))

    def __call__(
        self, result: ReplayResult | None, bursts: ReplayTimes | None, whole: bool
    ) -> Measured:
        if self._model is None:
            return Measured()
        return project(
            self._model,
            self._times,
            result,
            bursts,
            self._predicted,
            self._operations,
            whole,
            self._moved_inputs,
        )

    def removable_pct(self, result: ReplayResult) -> float | None:
        """Of the iteration, by a replay of a part of the step; None if it cannot be projected."""
        share = self(result, replay_times(result), False).metrics.get("removable_pct")
        return share.value if isinstance(share, Metric) else None


def moved_inputs(source: StepSource | None) -> int:
    """How many host tensors the step copies to the device with `x.to(device)`.

    With a graph such a copy goes straight into the input's fixed address. 0 unless all of them
    are small enough not to wait.
    """
    moved = [x for x in source.inputs if x.expression != x.copied_from] if source else []
    return len(moved) if all(_bytes(x) <= STAGED_BYTES for x in moved) else 0


def _bytes(entry: StepInput) -> int:
    bits = re.search(r"\d+", entry.dtype)  # of torch.float32, torch.bfloat16, torch.float8_e5m2
    return math.prod(entry.shape) * (int(bits[0]) // 8 if bits else 1)
