"""What can be gated: for every metric its direction, and the smallest difference that counts."""

from __future__ import annotations

from difflib import get_close_matches

from launchscope.analysis.metrics import UNITS as MEASURED
from launchscope.errors import UsageError

__all__ = ["BLOCKERS", "DEFAULTS", "UNITS", "floor_of", "higher_is_better", "is_count", "known",
           "needs_replay"]  # fmt: skip

# Not a metric of the Profile: what its list of blockers adds up to, per step.
BLOCKERS = "blockers"
UNITS = {**MEASURED, BLOCKERS: "1"}

_HIGHER = {"speedup", "iteration_speedup", "hdbi"}
_RATIOS = {"hdbi"}  # of unit 1, and yet no count
# Below these a difference is noise of the clock, whatever share of a small value it may be.
_FLOOR_OF_UNIT = {"1": 0.0, "ms": 0.01, "us": 1.0, "%": 0.5, "x": 0.02, "MiB": 1.0, "steps": 1.0}
_FLOORS = {"hdbi": 0.01, "capture_ms": 1.0, "instantiate_ms": 1.0}
_OF_THE_REPLAY = {
    "replay_ms",
    "speedup",
    "capture_ms",
    "instantiate_ms",
    "graph_nodes",
    "graph_memory_mib",
    "host_replay_us",
    "break_even_steps",
    "projected_iteration_ms",
    "iteration_speedup",
    "removable_pct",
}

# Limits in force where nobody wrote any, by the Profile's mode.
DEFAULTS: dict[str, dict[str, str]] = {
    "gpu": {"launches_per_step": "+0", "syncs_per_step": "+0", "launch_overhead_pct": "+2pp"},
    "rehearsal": {"device_ops_per_step": "+0", BLOCKERS: "+0", "shape_signatures": "+0"},
}
DEFAULTS["trace"] = DEFAULTS["gpu"]


def known(metric: str, error: type[UsageError], place: str) -> str:
    """The name itself; `error` with the nearest name if there is no such metric."""
    if metric in UNITS:
        return metric
    # By how each name begins too: what is typed wrongly is often short as well.
    beginnings = {name[: len(metric) + 1]: name for name in reversed(UNITS)}
    near = [
        {**beginnings, **{name: name for name in UNITS}}[found]
        for found in get_close_matches(metric.lower(), [*UNITS, *beginnings], n=1, cutoff=0.4)
    ]
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(UNITS)}"
    raise error(f"{place}: there is no metric {metric!r}", hint=hint)


def higher_is_better(metric: str) -> bool:
    return metric in _HIGHER


def is_count(metric: str) -> bool:
    return UNITS[metric] == "1" and metric not in _RATIOS


def floor_of(metric: str) -> float:
    """The least worsening, in the metric's unit, that a relative limit can call one."""
    return _FLOORS.get(metric, _FLOOR_OF_UNIT[UNITS[metric]])


def needs_replay(metrics: list[str] | tuple[str, ...]) -> bool:
    """Whether one of these is only known once the step was replayed."""
    return bool(_OF_THE_REPLAY.intersection(metrics))
