"""The tables that people see or export, as pandas frames: made once, shown by every format.

A column is a field of the model, or a figure with its unit in the name. Names are as they were
recorded, and what is not known is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from launchscope.model import (
    Change,
    CheckResult,
    Comparison,
    Difference,
    KernelDifference,
    KernelRow,
    LimitCheck,
    MetricChange,
    OpRow,
    OverheadRow,
    Point,
    Profile,
    RankRow,
    Ranks,
    SourceLine,
)

if TYPE_CHECKING:
    import pandas as pd

_POINT_METRICS = (
    "iteration_ms",
    "replayed_iteration_ms",
    "iteration_speedup",
    "removable_pct",
    "launches_per_step",
    "launch_overhead_pct",
    "graph_memory_mib",
    "device_ops_per_step",
    "shape_signatures",
)


def tables(value: object) -> dict[str, pd.DataFrame]:
    """The frames of a result, by name: `kernels`, `points` and the like. Empty for a result that
    has no tables."""
    return {name: make(value) for name, make in TABLES.get(type(value), {}).items()}


def metrics(profile: Profile) -> pd.DataFrame:
    found = profile.metrics.values()
    return frame(
        {
            "metric": list(profile.metrics),
            "value": [metric.value for metric in found],
            "unit": [metric.unit for metric in found],
            "exact": [metric.exact for metric in found],
            "iqr": [metric.iqr for metric in found],
            "samples": [len(metric.samples) for metric in found],
        }
    )


def kernels(profile: Profile) -> pd.DataFrame:
    """The kernels of a step, the one with the most GPU time first."""
    made = rows(KernelRow, profile.kernels)
    made["share_pct"] = _share(made["total_us"])
    return made.sort_values("total_us", ascending=False, kind="stable", ignore_index=True)


def overhead(found: Sequence[OverheadRow] | None) -> pd.DataFrame:
    """Lines, modules or operators; `share_pct` is of the idle time."""
    made = rows(OverheadRow, found or (), without="stack")
    made["share_pct"] = _share(made["idle_ms"])
    return made


def ranks(value: Ranks) -> pd.DataFrame:
    made = rows(RankRow, value.rows, without="traceback")
    made["slowest"] = made["name"] == value.slowest
    return made


def metric_changes(value: Difference) -> pd.DataFrame:
    return rows(MetricChange, value.metrics, "change_pct")


def kernel_changes(value: Difference) -> pd.DataFrame:
    return rows(KernelDifference, value.kernels, "change_us")


def points(comparison: Comparison) -> pd.DataFrame:
    """A row per point: its batch size and what was measured."""
    found = comparison.points
    verdicts = [None if p.profile is None else p.profile.verdict for p in found]
    return frame(
        {
            "batch_size": [point.batch_size for point in found],
            **{key: [point.value(key) for point in found] for key in _POINT_METRICS},
            "speedup": [
                point.value("speedup") if verdict is None else verdict.speedup
                for point, verdict in zip(found, verdicts)
            ],
            "busy_pct": list(map(_busy_pct, found)),
            "samples_per_s": [point.samples_per_s for point in found],
            "replay_samples_per_s": [point.replay_samples_per_s for point in found],
            "predicted": [point.value("replay_ms") is None for point in found],
            "blockers": [None if p.profile is None else len(p.profile.blockers) for p in found],
            "recommendation": [None if v is None else v.recommendation for v in verdicts],
            "basis": [None if v is None else v.basis for v in verdicts],
        }
    )


def _busy_pct(point: Point) -> float | None:
    iteration, busy = point.value("iteration_ms"), point.value("iteration_busy_ms")
    return 100 * busy / iteration if busy is not None and iteration else None


def frame(columns: Mapping[str, Sequence[Any]]) -> pd.DataFrame:
    """Texts stay Python strings, because Arrow refuses some that traces hold; whole numbers stay
    whole beside missing ones."""
    import pandas as pd

    return pd.DataFrame(
        {name: pd.Series(list(values), dtype=_dtype(values)) for name, values in columns.items()}
    )


def _dtype(values: Sequence[Any]) -> Any:
    kinds = {type(value) for value in values} - {type(None)}
    known = {(): float, (int,): "Int64", (float,): float, (bool,): "boolean"}
    return known.get(tuple(kinds), object)


def rows(
    kind: type[Struct], found: Sequence[object], *more: str, without: str = ""
) -> pd.DataFrame:
    """A column for each field and for `more` properties; lines of source as text."""
    names = (name for name in (*kind.__match_args__, *more) if name != without)
    return frame({name: [_plain(getattr(row, name)) for row in found] for name in names})


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return "; ".join(map(str, value))
    return str(value) if isinstance(value, SourceLine) else value


def _share(column: pd.Series[Any]) -> pd.Series[Any]:
    return 100.0 * column / (column.sum() or float("nan"))


TABLES: dict[type, dict[str, Callable[[Any], pd.DataFrame]]] = {
    Profile: {
        "metrics": metrics,
        "kernels": kernels,
        "operations": lambda profile: rows(OpRow, profile.ops),
        "lines": lambda profile: overhead(profile.overhead_by_line),
        "modules": lambda profile: overhead(profile.overhead_by_module),
        "operators": lambda profile: overhead(profile.launches_by_operator),
    },
    Comparison: {"points": points},
    Difference: {"metrics": metric_changes, "kernels": kernel_changes},
    CheckResult: {
        "limits": lambda check: rows(LimitCheck, check.limits),
        "changes": lambda check: rows(Change, check.changes),
    },
    Ranks: {"ranks": ranks},
}
