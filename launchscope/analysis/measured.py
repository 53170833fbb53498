"""The metrics and facts that one trace, and the timing beside it, give."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from launchscope.analysis.metrics import UNITS, counted
from launchscope.analysis.replay_model.prediction import Prediction
from launchscope.analysis.timeline.accounting import Accounting
from launchscope.analysis.timeline.timeline import IdleParts, Timeline
from launchscope.analysis.timeline.work import Work
from launchscope.analysis.timing import Floats, StepTimes
from launchscope.model import Facts, Metric
from launchscope.parser import columns as c
from launchscope.parser.trace import ints

__all__ = ["Measured", "Value", "from_idle", "from_timing", "from_trace"]

LARGE_KERNEL_US = 100.0
# Traced busy time above the untraced interval by more than this cannot be explained by noise.
BUSY_TOLERANCE_PCT = 3.0

Value = Metric | float | int | None


@dataclass(frozen=True)
class Measured:
    """A part of a Profile."""

    metrics: dict[str, Value] = field(default_factory=dict)
    facts: Facts = field(default_factory=Facts)
    notes: tuple[str, ...] = ()


def middle(values: Floats) -> float | None:
    """Median; None of nothing."""
    return float(np.median(values)) if len(values) else None


def _samples(key: str, values: Floats) -> Metric:
    return Metric.of_samples([float(value) for value in values], UNITS[key])


def from_timing(times: StepTimes) -> Measured:
    """Step and iteration times, untraced."""
    p95 = float(np.percentile(times.step, 95)) if len(times.step) else None
    metrics: dict[str, Value] = {
        "iteration_ms": _samples("iteration_ms", times.iteration),
        "host_iteration_ms": _samples("host_iteration_ms", times.host_iteration),
        "step_ms": _samples("step_ms", times.step),
        "step_p95_ms": p95,
        "host_ms": _samples("host_ms", times.host),
    }
    check = times.wall_check_pct
    notes: list[str] = []
    if check is not None and check > 3:
        notes.append(
            f"the timing pass took {check:.1f} % more or less wall time than its GPU events say"
        )
    facts = Facts(
        timing_steps=times.steps,
        iteration_check_pct=check,
        timing_window_iteration_ms=times.looks_ms,
        unsteady=times.unsteady,
    )
    return Measured(metrics, facts, tuple(notes))


def from_trace(
    work: Work, timeline: Timeline, accounts: Accounting, predicted: Prediction | None = None
) -> Measured:
    """Counts, launch times and GPU busy time of the traced steps, and what a replay would take."""
    launches_ms = accounts.api_ms
    metrics: dict[str, Value] = {
        "launches_per_step": counted("launches_per_step", accounts.launches),
        "memcpys_per_step": counted("memcpys_per_step", accounts.memcpys),
        "memsets_per_step": counted("memsets_per_step", accounts.memsets),
        "graph_launches_per_step": counted("graph_launches_per_step", accounts.graph_launches),
        "syncs_per_step": counted("syncs_per_step", accounts.syncs_inside),
        "kernels_per_step": counted("kernels_per_step", accounts.kernels),
        "launch_api_ms": _samples("launch_api_ms", launches_ms),
        "launch_api_raw_ms": _samples("launch_api_raw_ms", accounts.api_raw_ms),
        "blocked_launch_ms": _samples("blocked_launch_ms", accounts.blocked_ms),
        "gpu_busy_ms": _samples("gpu_busy_ms", timeline.step_busy),
        "iteration_busy_ms": _samples("iteration_busy_ms", timeline.iteration_busy),
        "queue_delay_us": _samples("queue_delay_us", accounts.queue_delay_us),
        "tklqt_ms": _samples("tklqt_ms", accounts.tklqt_ms),
    }
    if predicted is not None:
        metrics["predicted_replay_ms"] = Metric(
            predicted.ms, "ms", low=predicted.low_ms, high=predicted.high_ms
        )
    facts = replace(
        _kernel_facts(work),
        join_coverage_pct=work.coverage_pct,
        sync_names=tuple(accounts.sync_names),
        inside_step_syncs=counted("syncs_per_step", accounts.syncs_inside).value,
        between_step_syncs=counted("syncs_per_step", accounts.syncs_between).value,
    )
    notes = []
    if work.devices > 1:
        notes.append(f"{work.devices} devices are in the trace; figures are the busiest one's")
    return Measured(metrics, facts, tuple(notes))


def _kernel_facts(work: Work) -> Facts:
    inside = np.isin(work.activity_step, work.iterations.used)
    rows = inside & (work.activities[c.KIND] == c.KERNEL).to_numpy(bool)
    kernels = work.activities[rows]
    # Nsight Systems may record a replay as a whole: its kernels are not in the trace.
    whole = work.activities[inside & (work.activities[c.KIND] == c.GRAPH).to_numpy(bool)]
    if not len(kernels):
        return Facts(graph_kernel_share_pct=100.0 if len(whole) else None)
    duration = ints(kernels, c.DUR) / 1e3
    graph = np.append((work.launches[c.KIND] == c.GRAPH).to_numpy(bool), False)
    legacy = kernels[kernels[c.STREAM].isin(c.LEGACY_STREAMS)]
    steps = max(len(work.iterations.used), 1)
    in_graphs = 100 * graph[ints(kernels, c.LAUNCH)]
    share = float(in_graphs.mean())
    if len(whole):  # of GPU time then, because their kernels cannot be counted
        spans = float(ints(whole, c.DUR).sum()) / 1e3
        share = float((in_graphs * duration).sum() + 100 * spans) / (float(duration.sum()) + spans)
    return Facts(
        median_kernel_us=float(np.median(duration)),
        large_kernel_share_pct=float(
            100 * duration[duration >= LARGE_KERNEL_US].sum() / max(duration.sum(), 1e-9)
        ),
        graph_kernel_share_pct=share,
        legacy_stream_kernels=round(len(legacy) / steps),
        legacy_kernels_names=tuple(sorted(set(map(str, legacy[c.NAME])))[:20]),
    )


def from_idle(
    timeline: Timeline, step_ms: float | None, iteration_ms: float | None, between: float
) -> Measured:
    """Untraced idle time and its parts: the trace's waits in absolute ms, launching the rest.

    `between` is untraced by traced host time between steps. The data loader is host work that
    tracing stretches too, so its part is taken back by this factor, which is at most 1.
    """
    if iteration_ms is None:
        return Measured()
    busy = middle(timeline.iteration_busy)
    if busy is None:
        return Measured()
    notes: list[str] = []
    excess = 100 * (busy / iteration_ms - 1)
    if excess > BUSY_TOLERANCE_PCT:
        text = (
            f"the traced iteration kept the GPU busy for {busy:.3g} ms, {excess:.1f} % more than "
            f"the untraced iteration's {iteration_ms:.3g} ms: idle time cannot be told"
        )
        return Measured({}, Facts(busy_exceeds_interval_pct=excess), (text,))
    if excess > 0:
        notes.append(f"GPU busy time exceeds the iteration by {excess:.1f} %, taken as no idle")
    idle = max(iteration_ms - busy, 0.0)
    parts = _parts(timeline.iteration_idle, between)
    known = sum(parts.values())
    exposed = idle - known
    unattributed = parts["unattributed_ms"]
    if exposed < 0:
        # The traced waits are longer than the untraced idle time: keep the sum, and say so.
        unattributed += exposed
        if -exposed > 0.03 * iteration_ms:
            notes.append(
                f"waits in the trace exceed the untraced idle time by {-exposed:.3g} ms; "
                "the difference is in unattributed_ms"
            )
        exposed = 0.0
    split = _framework_share(timeline.iteration_idle)
    metrics: dict[str, Value] = {
        "gpu_idle_ms": idle,
        **parts,
        "unattributed_ms": unattributed,
        "launch_overhead_ms": exposed,
        "framework_ms": exposed * split,
        "launch_call_ms": exposed * (1 - split),
        "launch_overhead_pct": 100 * exposed / iteration_ms,
    }
    step_busy = middle(timeline.step_busy)
    if step_ms and step_busy is not None:
        step_known = sum(_parts(timeline.step_idle, between).values())
        metrics["step_overhead_pct"] = 100 * max(step_ms - step_busy - step_known, 0.0) / step_ms
    return Measured(metrics, notes=tuple(notes))


def _parts(idle: IdleParts, between: float) -> dict[str, float]:
    return {
        "sync_wait_ms": middle(idle.sync) or 0.0,
        "data_wait_ms": (middle(idle.data) or 0.0) * between,
        "dispatch_gap_ms": middle(idle.dispatch) or 0.0,
        "unattributed_ms": middle(idle.unattributed) or 0.0,
    }


def _framework_share(idle: IdleParts) -> float:
    total = float((idle.framework + idle.launch_call).sum())
    return float(idle.framework.sum()) / total if total > 0 else 0.0
