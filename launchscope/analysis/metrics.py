"""The registry of metrics: every key that a Profile has, with its unit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import mode

from launchscope.model import Metric

__all__ = ["UNITS", "counted", "exactly", "registry"]

UNITS: dict[str, str] = {
    "iteration_ms": "ms",
    "host_iteration_ms": "ms",
    "step_ms": "ms",
    "step_p95_ms": "ms",
    "host_ms": "ms",
    "launches_per_step": "1",
    "memcpys_per_step": "1",
    "memsets_per_step": "1",
    "graph_launches_per_step": "1",
    "syncs_per_step": "1",
    "kernels_per_step": "1",
    "launch_api_ms": "ms",
    "launch_api_raw_ms": "ms",
    "launch_share_pct": "%",
    "blocked_launch_ms": "ms",
    "gpu_busy_ms": "ms",
    "iteration_busy_ms": "ms",
    "gpu_idle_ms": "ms",
    "sync_wait_ms": "ms",
    "data_wait_ms": "ms",
    "dispatch_gap_ms": "ms",
    "unattributed_ms": "ms",
    "launch_overhead_ms": "ms",
    "framework_ms": "ms",
    "launch_call_ms": "ms",
    "launch_overhead_pct": "%",
    "step_overhead_pct": "%",
    "queue_delay_us": "us",
    "tklqt_ms": "ms",
    "hdbi": "1",
    "predicted_replay_ms": "ms",
    "replay_ms": "ms",
    "speedup": "x",
    "capture_ms": "ms",
    "instantiate_ms": "ms",
    "graph_nodes": "1",
    "graph_memory_mib": "MiB",
    "host_replay_us": "us",
    "break_even_steps": "steps",
    "projected_iteration_ms": "ms",
    "iteration_speedup": "x",
    "sync_cost_ms": "ms",
    "removable_pct": "%",
    "shape_signatures": "1",
    "device_ops_per_step": "1",
}


def registry(measured: Mapping[str, Metric | float | int | None]) -> dict[str, Metric]:
    """All metrics in the registry's order; a bare number gets its key's unit, the rest are None."""
    unknown = measured.keys() - UNITS.keys()
    assert not unknown, f"no such metric: {sorted(unknown)}"
    result = {}
    for key, unit in UNITS.items():
        found = measured.get(key)
        result[key] = found if isinstance(found, Metric) else Metric(found, unit)
    return result


def counted(key: str, samples: Iterable[int], *, exact: bool = True) -> Metric:
    """A count: exact when all samples agree, otherwise the most frequent one."""
    kept = tuple(int(sample) for sample in samples)
    if not kept:
        return Metric(None, UNITS[key])
    return Metric(mode(kept), UNITS[key], exact and len(set(kept)) == 1, tuple(map(float, kept)))


def exactly(key: str, count: int | None) -> Metric:
    """A count that was read off, not measured; None: not known."""
    return Metric(count, UNITS[key], count is not None)
