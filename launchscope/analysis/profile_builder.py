"""The metrics, facts and notes of one measurement, from a recording or from a trace alone."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import mode
from typing import Any

import numpy as np
from msgspec.structs import replace

from launchscope.analysis.metrics import UNITS
from launchscope.analysis.replay_model.gain import Projection, TracedSteps
from launchscope.analysis.steps.between import BetweenCounts, of_trace
from launchscope.analysis.timeline.communication import communication_ms, is_collective
from launchscope.analysis.timeline.timeline import Idle, exposed
from launchscope.analysis.timeline.work import Work
from launchscope.analysis.timing import BUSY_TOLERANCE_PCT, StepTimes, median_or_none
from launchscope.model import BetweenSteps, Facts, Metric
from launchscope.parser import columns as c
from launchscope.parser.trace import Floats, ints, median_of, quantile_of

LARGE_KERNEL_US = 100.0
# Waits of the traced steps that exceed the untraced idle time by more than this share of the
# iteration are not those of the timed steps: other processes on the GPU make both vary.
_WAITS_TOLERANCE_PCT = 5.0

_WAITS = {
    "sync_wait_ms": "sync",
    "data_wait_ms": "data",
    "setup_ms": "setup",
    "dispatch_gap_ms": "dispatch",
    "unattributed_ms": "unattributed",
}


class ProfileBuilder:
    """Every metric of the registry, None until a part of the measurement gives it."""

    def __init__(self) -> None:
        self.metrics = {key: Metric(None, unit) for key, unit in UNITS.items()}
        self.facts = Facts()
        self.notes: list[str] = []
        self.between: BetweenSteps | None = None

    @property
    def parts(self) -> dict[str, Any]:
        """What the measurement gave, by fields of a Profile."""
        return {
            "metrics": self.metrics,
            "between": self.between,
            "notes": tuple(dict.fromkeys(self.notes)),
            "facts": self.facts,
        }

    def know(self, **facts: Any) -> None:
        """Set fields of the Facts."""
        self.facts = replace(self.facts, **facts)

    def set(self, key: str, value: float | None, *, exact: bool = False) -> None:
        """Set a metric without samples."""
        self.metrics[key] = Metric(value, UNITS[key], exact)

    def sample(self, key: str, values: Iterable[float]) -> None:
        """Set a metric to the median of timed samples."""
        self.metrics[key] = Metric.of_samples([float(value) for value in values], UNITS[key])

    def count(self, key: str, samples: Iterable[float], *, exact: bool = True) -> None:
        """Set a metric to the most frequent count. It is exact when all samples agree."""
        seen = [int(sample) for sample in samples]
        if seen:
            agree = exact and len(set(seen)) == 1
            self.metrics[key] = Metric(mode(seen), UNITS[key], agree, tuple(map(float, seen)))

    def add_times(self, times: StepTimes) -> None:
        self.sample("iteration_ms", times.iteration)
        self.sample("host_iteration_ms", times.host_iteration)
        self.sample("step_ms", times.step)
        if len(times.step):
            self.set("step_p95_ms", quantile_of(times.step, 0.95))
        self.sample("host_ms", times.host)

    def add_trace(self, traced: TracedSteps, times: StepTimes, *, timed_untraced: bool) -> None:
        """Add what the traced steps show, and their shares of `times`: those of other steps, run
        without a profiler, if `timed_untraced`."""
        accounts, timeline, predicted = traced.accounts, traced.timeline, traced.predicted
        for key, counts in accounts.counts.items():
            self.count(key, counts)
        for key, samples in accounts.times.items():
            self.sample(key, samples)
        communication, alone = communication_ms(traced.work)
        longer = _longer_waits_ms(traced, times if timed_untraced else StepTimes(), alone)
        self.sample("gpu_busy_ms", timeline.step_busy - np.minimum(longer, timeline.step_busy))
        self.sample("iteration_busy_ms", timeline.iteration_busy - longer)
        self.sample("communication_ms", communication - longer)
        self.sample("exposed_communication_ms", alone - longer)
        if predicted is not None:
            self.metrics["predicted_replay_ms"] = Metric(
                predicted.ms, "ms", low=predicted.low_ms, high=predicted.high_ms
            )
        self.know(join_coverage_pct=traced.work.coverage_pct)
        self.add_between(of_trace(traced.work))
        self._add_kernels(traced.work)
        self._add_shares(traced, times)

    def add_between(self, counts: BetweenCounts | None) -> None:
        """Add what runs between steps, as the inspection or the trace shows it."""
        if counts is None:
            return
        for key, value in counts.per_iteration.items():
            self.set(key, int(value) if value == int(value) else value, exact=True)
        if counts.ranges:
            self.know(ranges={**(self.facts.ranges or {}), **counts.ranges})
        known, new = self.between or BetweenSteps(), counts.steps
        self.between = BetweenSteps(
            max(known.observed, new.observed),
            known.ops + new.ops,
            known.blockers + new.blockers,
            known.kernels + new.kernels,
            known.periodic + new.periodic,
        )

    def _add_kernels(self, work: Work) -> None:
        kind = work.activities[c.KIND]
        inside = np.isin(work.activity_step, work.iterations.used)
        kernels = work.activities[inside & (kind == c.KERNEL)]
        # Nsight Systems may record a replay as a whole: its kernels are not in the trace.
        whole = work.activities[inside & (kind == c.GRAPH)]
        if not len(kernels):
            self.know(graph_kernel_share_pct=100.0 if len(whole) else None)
            return
        duration = ints(kernels, c.DUR) / 1e3
        graph = np.append(work.launches[c.KIND] == c.GRAPH, False)
        in_graphs = 100 * graph[ints(kernels, c.LAUNCH)]
        share = float(in_graphs.mean())
        if len(whole):  # the kernels of a whole graph cannot be counted
            spans = float(ints(whole, c.DUR).sum()) / 1e3
            share = float((in_graphs * duration).sum() + 100 * spans)
            share /= max(float(duration.sum()) + spans, 1e-9)
        own = duration[~is_collective(kernels)]  # a collective lasts as long as it waits
        large = own[own >= LARGE_KERNEL_US].sum()
        legacy = kernels[np.isin(ints(kernels, c.STREAM), c.LEGACY_STREAMS)]
        self.know(
            median_kernel_us=median_of(duration),
            large_kernel_share_pct=float(100 * large / max(own.sum(), 1e-9)),
            graph_kernel_share_pct=share,
            legacy_stream_kernels=round(len(legacy) / max(len(work.iterations.used), 1)),
        )

    def _add_shares(self, traced: TracedSteps, times: StepTimes) -> None:
        host_side, step_busy = traced.accounts.times, self.metrics["gpu_busy_ms"].value
        step, host = times.step_ms, median_or_none(times.host)
        api = median_or_none(host_side["launch_api_ms"])
        if step and api is not None:
            self.set("launch_share_pct", 100 * api / step)
        if step_busy is not None and host is not None:
            own = max(host - (median_or_none(host_side["blocked_launch_ms"]) or 0.0), 0.0)
            self.set("hdbi", step_busy / (step_busy + own) if step_busy + own > 0 else None)
        busy = self.metrics["iteration_busy_ms"].value
        if times.iteration_ms is None or busy is None:
            return
        excess = 100 * (busy / times.iteration_ms - 1)
        if excess > BUSY_TOLERANCE_PCT:
            self.know(busy_exceeds_interval_pct=excess)
            self.notes.append(
                f"the GPU is busy for {busy:.3g} ms of the traced iteration, {excess:.1f} % more "
                f"than the untraced iteration takes ({times.iteration_ms:.3g} ms): its idle time "
                "is unknown"
            )
            return
        if excess >= 0.05:  # less would be written as 0.0 %
            self.notes.append(
                f"the GPU's busy time exceeds the iteration by {excess:.1f} %: idle time is 0"
            )
        # Tracing stretches the host's time between steps, and with it the data loader's.
        windows, between = traced.work.iterations, 1.0
        traced_ns = median_of((windows.step_begin - windows.begin)[windows.used])
        if len(times.host_between) and traced_ns > 0:
            between = min(1.0, median_of(times.host_between) / (traced_ns / 1e6))
        waits = _waits(traced.timeline.iteration_idle, between)
        self._add_idle(traced.timeline.iteration_idle, times.iteration_ms, busy, waits)
        if step and step_busy is not None and self.facts.waits_exceed_idle_pct is None:
            step_waits = sum(_waits(traced.timeline.step_idle, between).values())
            self.set("step_overhead_pct", 100 * max(step - step_busy - step_waits, 0.0) / step)

    def _add_idle(
        self, traced: Idle, iteration_ms: float, busy: float, waits: dict[str, float]
    ) -> None:
        """The untraced idle time is the trace's waits in absolute ms; launching is the rest.

        Its parts stay unknown if the waits are longer than all of it."""
        idle = max(iteration_ms - busy, 0.0)
        self.set("gpu_idle_ms", idle)
        overhead = idle - sum(waits.values())
        excess = 100 * -overhead / iteration_ms
        if excess > _WAITS_TOLERANCE_PCT:
            self.know(waits_exceed_idle_pct=excess)
            return
        if overhead < 0:
            waits["unattributed_ms"] += overhead  # so that the parts add up
            overhead = 0.0
        total = float(exposed(traced).sum())
        framework = float(traced["framework"].sum()) / total if total > 0 else 0.0
        for key, ms in waits.items():
            self.set(key, ms)
        self.set("launch_overhead_ms", overhead)
        self.set("framework_ms", overhead * framework)
        self.set("launch_call_ms", overhead * (1 - framework))
        self.set("launch_overhead_pct", 100 * overhead / iteration_ms)

    def add_projection(self, projection: Projection) -> None:
        eager, replayed = projection.eager_ms, projection.replayed_ms
        self.metrics["replayed_iteration_ms"] = Metric(
            replayed, "ms", samples=projection.samples, source=projection.source
        )
        self.set("iteration_speedup", eager / replayed if replayed > 0 else None)
        self.metrics["removable_pct"] = Metric(
            projection.removable_pct, "%", low=projection.low_pct, high=projection.high_pct
        )
        self.set("break_even_steps", projection.break_even_steps)
        self.know(removable_step_pct=projection.step_pct)


def _longer_waits_ms(traced: TracedSteps, times: StepTimes, alone: Floats) -> Floats:
    """By how much tracing lengthens the collectives of each used iteration, in which the GPU waits
    for other ranks.

    Their hosts are traced, too. All of an iteration but computing gets longer, each part in
    proportion.
    """
    windows, iteration = traced.work.iterations, times.iteration_ms
    if not iteration or not alone.any():
        return np.zeros(len(alone))
    whole = (windows.end - windows.begin)[windows.used] / 1e6
    computing = traced.timeline.iteration_busy - alone
    rest = np.maximum(whole - computing, 1e-9)
    kept = np.clip((iteration - computing) / rest, 0.0, 1.0)
    longer: Floats = alone * (1.0 - kept)
    return longer


def _waits(idle: Idle, between: float) -> dict[str, float]:
    """What the GPU waits for, except launches. `between` scales the data loader's part."""
    idle = idle | {"unattributed": idle["unattributed"] + idle["paused"]}
    waits = {key: median_or_none(idle[cause]) or 0.0 for key, cause in _WAITS.items()}
    return waits | {"data_wait_ms": waits["data_wait_ms"] * between}
