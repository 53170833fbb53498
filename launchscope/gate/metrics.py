"""What can have a limit: each metric's direction, and the smallest difference that counts."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from launchscope.analysis.metrics import UNITS as MEASURED
from launchscope.errors import UsageError

# Not a metric of the Profile: how many blockers a step has.
BLOCKERS = "blockers"
UNITS = {**MEASURED, BLOCKERS: "1"}

_HIGHER = {"speedup", "iteration_speedup", "hdbi"}
_RATIOS = {"hdbi"}  # of unit 1 and still not counts
# A smaller difference is noise of the clock, whatever share of a small value it is.
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

# Limits in force where none are given, by the mode of the Profile.
DEFAULTS: dict[str, dict[str, str]] = {
    "gpu": {"launches_per_step": "+0", "syncs_per_step": "+0", "launch_overhead_pct": "+2pp"},
    "rehearsal": {"device_ops_per_step": "+0", BLOCKERS: "+0", "shape_signatures": "+0"},
}
DEFAULTS["trace"] = DEFAULTS["gpu"]


def require_known(metric: str, error: type[UsageError], place: str) -> None:
    """`error` with the nearest name if there is no such metric."""
    if metric in UNITS:
        return
    # Short forms such as `launches` are close to the beginnings of names, not to the names.
    forms = {name[: len(metric) + 1]: name for name in reversed(UNITS)}
    forms |= {name: name for name in UNITS}
    near = get_close_matches(metric.lower(), forms, n=1, cutoff=0.4)
    hint = f"did you mean {forms[near[0]]}?" if near else f"known: {', '.join(UNITS)}"
    raise error(f"{place}: there is no metric {metric!r}", hint=hint)


def higher_is_better(metric: str) -> bool:
    return metric in _HIGHER


def is_count(metric: str) -> bool:
    return UNITS[metric] == "1" and metric not in _RATIOS


def floor_of(metric: str) -> float:
    """The smallest worsening, in the metric's unit, that counts against a relative limit."""
    return _FLOORS.get(metric, _FLOOR_OF_UNIT[UNITS[metric]])


def needs_replay(metrics: Iterable[str]) -> bool:
    """Whether one of these is only known after a replay of the step."""
    return not _OF_THE_REPLAY.isdisjoint(metrics)
