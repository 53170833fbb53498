"""What can have a limit, and in which direction each metric is worse."""

from __future__ import annotations

from launchscope.analysis import metrics as measured
from launchscope.errors import UsageError

BLOCKERS = "blockers"  # not a metric of the Profile: how many blockers a step has
UNITS = {**measured.UNITS, BLOCKERS: "1"}
LABELS = {**measured.LABELS, BLOCKERS: "blockers per step"}

_HIGHER_IS_BETTER = {"speedup", "iteration_speedup", "hdbi"}
NEEDS_REPLAY = {
    "replayed_iteration_ms",
    "iteration_speedup",
    "removable_pct",
    "replay_ms",
    "speedup",
    "capture_ms",
    "instantiate_ms",
    "graph_nodes",
    "graph_memory_mib",
    "host_replay_us",
    "break_even_steps",
}


def require_known(metric: str, error: type[UsageError], place: str) -> None:
    """`error` with the nearest name if there is no such metric."""
    if metric in UNITS:
        return
    from difflib import get_close_matches

    # Short forms such as `launches` are close to the beginnings of names, not to the names.
    forms = {name[: len(metric) + 1]: name for name in reversed(UNITS)}
    forms |= {name: name for name in UNITS}
    near = get_close_matches(metric.lower(), forms, n=1, cutoff=0.4)
    hint = f"did you mean {forms[near[0]]}?" if near else f"known: {', '.join(UNITS)}"
    raise error(f"{place}: there is no metric {metric!r}", hint=hint)


def label(metric: str) -> str:
    """What a metric is called; a file may name one of a newer version."""
    return LABELS.get(metric, metric)


def higher_is_better(metric: str) -> bool:
    return metric in _HIGHER_IS_BETTER


def is_count(metric: str) -> bool:
    return UNITS[metric] == "1" and metric != "hdbi"  # a ratio


def is_timed(metric: str) -> bool:
    """Whether two runs of the same code give two values."""
    return UNITS[metric] not in ("1", "MiB") or metric == "hdbi"
