"""Collects the metrics, facts and notes of one measurement, whether it was recorded by a run or
read from a trace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import mode

import numpy as np

from launchscope.analysis.metrics import UNITS
from launchscope.analysis.replay_model.gain import Projection, Projector
from launchscope.analysis.replay_model.prediction import Optimizer, Prediction, predict, step_work
from launchscope.analysis.timeline.accounting import Accounting, account
from launchscope.analysis.timeline.timeline import IdleParts, Timeline, build_timeline
from launchscope.analysis.timeline.work import Work
from launchscope.analysis.timing import BUSY_TOLERANCE_PCT, StepTimes, median_or_none
from launchscope.model import Facts, Metric
from launchscope.parser import columns as c
from launchscope.parser.trace import Floats, ints

LARGE_KERNEL_US = 100.0


@dataclass(frozen=True)
class TracedSteps:
    """The used steps of a trace: their work, idle time and launches, and their predicted replay."""

    work: Work
    timeline: Timeline
    accounts: Accounting
    predicted: Prediction | None

    @classmethod
    def of(cls, work: Work, optimizer: Optimizer | None, profiler_us: float = 0.0) -> TracedSteps:
        """`optimizer` is what a capture changes in the optimizers; None: predict nothing."""
        device_work = step_work(work) if optimizer is not None else None
        predicted = predict(device_work, optimizer or Optimizer()) if device_work else None
        return cls(work, build_timeline(work), account(work, profiler_us), predicted)


class ProfileBuilder:
    """Every metric of the registry, None until a part of the measurement gives it."""

    def __init__(self) -> None:
        self.metrics = {key: Metric(None, unit) for key, unit in UNITS.items()}
        self.facts = Facts()
        self.notes: list[str] = []

    def set(self, key: str, value: float | None, *, exact: bool = False) -> None:
        """A figure without samples."""
        self.metrics[key] = Metric(value, UNITS[key], exact)

    def sample(self, key: str, values: Iterable[float]) -> None:
        """The median of timed samples."""
        self.metrics[key] = Metric.of_samples([float(value) for value in values], UNITS[key])

    def count(self, key: str, samples: Iterable[int], *, exact: bool = True) -> None:
        """A count: exact when all samples agree, otherwise the most frequent one."""
        seen = [int(sample) for sample in samples]
        if seen:
            agree = exact and len(set(seen)) == 1
            self.metrics[key] = Metric(mode(seen), UNITS[key], agree, tuple(map(float, seen)))

    # ---------------------------------------------------------------------- parts

    def add_times(self, times: StepTimes) -> None:
        """Step and iteration times."""
        self.sample("iteration_ms", times.iteration)
        self.sample("host_iteration_ms", times.host_iteration)
        self.sample("step_ms", times.step)
        if len(times.step):
            self.set("step_p95_ms", float(np.percentile(times.step, 95)))
        self.sample("host_ms", times.host)

    def add_trace(self, traced: TracedSteps) -> None:
        """Counts, launch times and GPU busy time of the traced steps, and the predicted replay."""
        accounts, timeline, predicted = traced.accounts, traced.timeline, traced.predicted
        self.count("launches_per_step", accounts.launches)
        self.count("memcpys_per_step", accounts.memcpys)
        self.count("memsets_per_step", accounts.memsets)
        self.count("graph_launches_per_step", accounts.graph_launches)
        self.count("syncs_per_step", accounts.syncs_inside)
        self.count("kernels_per_step", accounts.kernels)
        self.sample("launch_api_ms", accounts.api_ms)
        self.sample("launch_api_raw_ms", accounts.api_raw_ms)
        self.sample("blocked_launch_ms", accounts.blocked_ms)
        self.sample("gpu_busy_ms", timeline.step_busy)
        self.sample("iteration_busy_ms", timeline.iteration_busy)
        self.sample("queue_delay_us", accounts.queue_delay_us)
        self.sample("tklqt_ms", accounts.tklqt_ms)
        if predicted is not None:
            self.metrics["predicted_replay_ms"] = Metric(
                predicted.ms, "ms", low=predicted.low_ms, high=predicted.high_ms
            )
        between = accounts.syncs_between.tolist()
        self.facts = replace(
            self.facts,
            join_coverage_pct=traced.work.coverage_pct,
            sync_names=tuple(accounts.sync_names),
            inside_step_syncs=self.metrics["syncs_per_step"].value,
            between_step_syncs=mode(between) if between else None,
        )
        self._add_kernels(traced.work)
        if traced.work.devices > 1:
            self.notes.append(
                f"{traced.work.devices} devices are in the trace; figures are the busiest one's"
            )

    def _add_kernels(self, work: Work) -> None:
        inside = np.isin(work.activity_step, work.iterations.used)
        rows = inside & (work.activities[c.KIND] == c.KERNEL).to_numpy(bool)
        kernels = work.activities[rows]
        # Nsight Systems may record a replay as a whole: its kernels are not in the trace.
        whole = work.activities[inside & (work.activities[c.KIND] == c.GRAPH).to_numpy(bool)]
        if not len(kernels):
            share = 100.0 if len(whole) else None
            self.facts = replace(self.facts, graph_kernel_share_pct=share)
            return
        duration = ints(kernels, c.DUR) / 1e3
        graph = np.append((work.launches[c.KIND] == c.GRAPH).to_numpy(bool), False)
        in_graphs = 100 * graph[ints(kernels, c.LAUNCH)]
        share = float(in_graphs.mean())
        if len(whole):  # their kernels cannot be counted, so the share is one of GPU time
            spans = float(ints(whole, c.DUR).sum()) / 1e3
            share = float((in_graphs * duration).sum() + 100 * spans)
            share /= float(duration.sum()) + spans
        large = duration[duration >= LARGE_KERNEL_US].sum()
        legacy = kernels[kernels[c.STREAM].isin(c.LEGACY_STREAMS)]
        self.facts = replace(
            self.facts,
            median_kernel_us=float(np.median(duration)),
            large_kernel_share_pct=float(100 * large / max(duration.sum(), 1e-9)),
            graph_kernel_share_pct=share,
            legacy_stream_kernels=round(len(legacy) / max(len(work.iterations.used), 1)),
            legacy_kernels_names=tuple(sorted(set(map(str, legacy[c.NAME])))[:20]),
        )

    def add_shares(self, traced: TracedSteps, times: StepTimes) -> None:
        """The trace's figures as shares of the untraced times: launch calls, idle time, HDBI."""
        accounts, step_busy = traced.accounts, median_or_none(traced.timeline.step_busy)
        step, host = times.step_ms, median_or_none(times.host)
        api = median_or_none(accounts.api_ms)
        if step and api is not None:
            self.set("launch_share_pct", 100 * api / step)
        if step_busy is not None and host is not None:
            own = max(host - (median_or_none(accounts.blocked_ms) or 0.0), 0.0)
            self.set("hdbi", step_busy / (step_busy + own) if step_busy + own > 0 else None)
        busy = median_or_none(traced.timeline.iteration_busy)
        if times.iteration_ms is None or busy is None:
            return
        excess = 100 * (busy / times.iteration_ms - 1)
        if excess > BUSY_TOLERANCE_PCT:
            self.facts = replace(self.facts, busy_exceeds_interval_pct=excess)
            self.notes.append(
                f"the GPU is busy for {busy:.3g} ms of the traced iteration, {excess:.1f} % more "
                f"than the untraced iteration takes ({times.iteration_ms:.3g} ms): its idle time "
                "is unknown"
            )
            return
        if excess > 0:
            self.notes.append(
                f"the GPU's busy time exceeds the iteration by {excess:.1f} %: idle time is 0"
            )
        between = _host_stretch(traced.work, times)
        self._add_idle(traced.timeline, times.iteration_ms, busy, between)
        if step and step_busy is not None:
            waits = sum(_idle_parts(traced.timeline.step_idle, between).values())
            self.set("step_overhead_pct", 100 * max(step - step_busy - waits, 0.0) / step)

    def _add_idle(
        self, timeline: Timeline, iteration_ms: float, busy: float, between: float
    ) -> None:
        """Untraced idle time: the trace's waits in absolute ms, launching the rest."""
        idle = max(iteration_ms - busy, 0.0)
        parts = _idle_parts(timeline.iteration_idle, between)
        exposed = idle - sum(parts.values())
        if exposed < 0:
            # The traced waits are longer than the untraced idle time: keep the sum, and say so.
            parts["unattributed_ms"] += exposed
            if -exposed > 0.03 * iteration_ms:
                self.notes.append(
                    f"waits in the trace exceed the untraced idle time by {-exposed:.3g} ms; "
                    "unattributed_ms holds the difference"
                )
            exposed = 0.0
        host = timeline.iteration_idle
        total = float((host.framework + host.launch_call).sum())
        framework = float(host.framework.sum()) / total if total > 0 else 0.0
        self.set("gpu_idle_ms", idle)
        for key, ms in parts.items():
            self.set(key, ms)
        self.set("launch_overhead_ms", exposed)
        self.set("framework_ms", exposed * framework)
        self.set("launch_call_ms", exposed * (1 - framework))
        self.set("launch_overhead_pct", 100 * exposed / iteration_ms)

    def add_simulation(self, projector: Projector) -> None:
        """How well the simulation gives back the measured iteration, and what its waits cost."""
        self.set("sync_cost_ms", projector.sync_cost_ms)
        self.facts = replace(self.facts, simulation_error_pct=projector.error_pct)

    def add_projection(self, projection: Projection) -> None:
        """The iteration with its step replayed."""
        eager, projected = projection.eager_ms, projection.projected_ms
        self.set("projected_iteration_ms", projected)
        self.set("iteration_speedup", eager / projected if projected > 0 else None)
        self.metrics["removable_pct"] = Metric(
            projection.removable_pct, "%", low=projection.low_pct, high=projection.high_pct
        )
        self.set("break_even_steps", projection.break_even_steps)
        self.facts = replace(
            self.facts,
            replay_ms_source=projection.source,
            removable_step_pct=projection.step_pct,
        )


def _host_stretch(work: Work, times: StepTimes) -> float:
    """Untraced by traced host time between steps, at most 1: tracing stretches a data loader."""
    begin, step_begin = work.iterations.begin, work.iterations.step_begin
    traced = float(np.median((step_begin - begin)[work.iterations.used])) / 1e6
    if not len(times.host_between) or traced <= 0:
        return 1.0
    return min(1.0, float(np.median(times.host_between)) / traced)


def _idle_parts(idle: IdleParts, between: float) -> dict[str, float]:
    """What the GPU waits for apart from launches. `between` scales the data loader's part."""

    def typical(values: Floats) -> float:
        return median_or_none(values) or 0.0

    return {
        "sync_wait_ms": typical(idle.sync),
        "data_wait_ms": typical(idle.data) * between,
        "dispatch_gap_ms": typical(idle.dispatch),
        "unattributed_ms": typical(idle.unattributed),
    }
