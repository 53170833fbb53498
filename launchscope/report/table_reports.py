"""What the report of a Difference, or of several ranks, says: rows and sentences."""

from __future__ import annotations

from dataclasses import dataclass, field

from launchscope import wording
from launchscope.model import Metric
from launchscope.model.difference import Difference, KernelDifference, MetricChange, Side
from launchscope.model.ranks import RankRow, Ranks, Skew
from launchscope.wording import plural

__all__ = ["Sheet", "SheetTable", "sheet_of_difference", "sheet_of_ranks"]

# Changes of less than this are not shown unless they are beyond the spread.
_LEAST_PCT = 1.0
_NOTHING = 1e-6  # what a subtraction of equal times may leave
# What is told first of a difference, where both sides have it.
_LEADING = ("iteration_ms", "step_ms", "gpu_busy_ms", "launches_per_step")
_NAMES = {
    "own_ms": "own time",
    "step_ms": "step",
    "gpu_busy_ms": "GPU busy",
    "iteration_ms": "iteration",
    "busy_ms": "GPU busy",
    "communication_ms": "collectives",
    "launches_per_step": "launches per step",
}


@dataclass(frozen=True)
class SheetTable:
    """`left` are the columns that are text; `marked` rows stand out. Rows are text only."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: frozenset[int] = frozenset()
    marked: frozenset[tuple[str, ...]] = field(default_factory=frozenset)
    spare: tuple[int, ...] = ()  # columns that a narrow terminal does without, the first first


@dataclass(frozen=True)
class Sheet:
    headline: str
    context: tuple[str, ...]
    tables: tuple[SheetTable, ...]
    notes: tuple[str, ...] = ()


# ---------------------------------------------------------------------- difference


def sheet_of_difference(value: Difference, top: int) -> Sheet:
    """Metrics that changed, and the `top` kernels of each state by GPU time."""
    shown = [change for change in value.metrics if _is_told(change)]
    tables = []
    if shown:
        tables.append(_metrics(shown))
    for state, title in (
        ("changed", "Kernels that changed"),
        ("appeared", "Kernels that appeared"),
        ("vanished", "Kernels that vanished"),
    ):
        mine = [kernel for kernel in value.kernels if kernel.state == state]
        if mine:
            tables.append(_kernels(title, mine, top))
    unchanged = len(value.metrics) - len(shown)
    context = (_said("before", value.before), _said("after", value.after))
    same = f"{plural(unchanged, 'metric')} and {plural(value.same_kernels, 'kernel')}"
    notes = [*value.notes, f"as before: {same}"]
    return Sheet(_headline(value), context, tuple(tables), tuple(notes))


def _said(which: str, side: Side) -> str:
    parts = [f"{which}: {side.name}", side.device or "no device", f"step: {side.step}"]
    if side.recommendation is not None:
        parts.append(side.recommendation.replace("_", " "))
    return " · ".join(parts)


def _headline(value: Difference) -> str:
    known = {change.key: change for change in value.metrics}
    leading = [known[key] for key in _LEADING if key in known]
    moved = [
        f"{_NAMES[change.key]} {_moved(change)}"
        for change in leading
        if _moved(change) and abs(change.change_pct or 0.0) >= _LEAST_PCT
    ]
    counts = [
        f"{count} {state}"
        for state in ("appeared", "vanished", "changed")
        if (count := sum(kernel.state == state for kernel in value.kernels))
    ]
    first = ", ".join(moved) or ("times and launches as before" if leading else "no common figure")
    second = f"of the kernels {', '.join(counts)}" if counts else "the kernels are the same"
    return f"{first[0].upper()}{first[1:]}; {second}."


def _is_told(change: MetricChange) -> bool:
    if change.before is None or change.after is None:
        return True
    if max(abs(change.before), abs(change.after)) < _NOTHING:
        return False
    moved = abs(change.change_pct) if change.change_pct is not None else None
    if moved is None:
        return change.before != change.after
    return moved >= _LEAST_PCT or change.beyond_spread is True


def _metrics(changes: list[MetricChange]) -> SheetTable:
    rows = tuple(
        (
            change.key,
            _figure(change.before, change.unit),
            _figure(change.after, change.unit),
            _moved(change),
            {True: "", False: "within the spread", None: ""}[change.beyond_spread],
        )
        for change in changes
    )
    headings = ("metric", "before", "after", "change", "")
    return SheetTable("Metrics", headings, rows, frozenset({0, 4}))


def _moved(change: MetricChange) -> str:
    """Of a share the difference in points: a change of a share in per cent misleads."""
    if change.before is None or change.after is None or abs(change.before) < _NOTHING:
        return ""
    if change.unit == "%":
        return f"{change.after - change.before:+.1f} points"
    return wording.change(change.before, change.after)


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return wording.NOT_MEASURED
    if unit in ("1", "steps") and float(value).is_integer():
        return f"{value:,.0f}" + (" steps" if unit == "steps" else "")
    if abs(value) < _NOTHING:
        value = 0.0
    if unit in ("%", "MiB"):
        return wording.with_unit(Metric(value, unit))
    return wording.figures(value) + {"1": "", "x": "x"}.get(unit, f" {unit}")


def _kernels(title: str, kernels: list[KernelDifference], top: int) -> SheetTable:
    rows = [
        (
            _counts(kernel),
            f"{wording.figures(kernel.before_us)} us",
            f"{wording.figures(kernel.after_us)} us",
            f"{kernel.change_us:+,.1f} us",
            _short(kernel.name),
        )
        for kernel in kernels[:top]
    ]
    if len(kernels) > top:
        rows.append(("", "", "", "", f"and {len(kernels) - top} more"))
    headings = ("count", "before", "after", "change", "kernel")
    return SheetTable(f"{title} ({len(kernels)})", headings, tuple(rows), frozenset({4}))


def _counts(kernel: KernelDifference) -> str:
    before, after = (f"{n:,.4g}" for n in (kernel.before_count, kernel.after_count))
    return before if before == after else f"{before} > {after}"


def _short(name: str) -> str:
    for noise in ("void ", "at::native::", "(anonymous namespace)::", "at::cuda::detail::"):
        name = name.replace(noise, "")
    return name


# ---------------------------------------------------------------------------- ranks


def sheet_of_ranks(value: Ranks) -> Sheet:
    """One row per rank, the slowest marked, and how far they are apart."""
    cells = [(row.name, _rank(row)) for row in value.rows]
    marked = frozenset(row for name, row in cells if name == value.slowest)
    headings = (
        "rank", "own", "iteration", "GPU busy", "collectives", "launches", "exposed", "removable",
        "verdict", "file",
    )  # fmt: skip
    listed = tuple(row for _, row in cells)
    tables = [SheetTable("", headings, listed, frozenset({8, 9}), marked, (6, 3, 5, 4, 2))]
    if value.skews:
        rows = tuple(_skew(skew) for skew in value.skews)
        across = ("", "least", "median", "most", "apart")
        tables.append(SheetTable("Skew over the ranks", across, rows, frozenset({0})))
    context = (
        "own: the iteration without NCCL kernels, in which a rank also waits for the others",
    )
    return Sheet(value.headline, context, tuple(tables), value.notes)


def _rank(row: RankRow) -> tuple[str, ...]:
    if row.problem is not None:
        return ("?", *[""] * 7, "not read", row.name)
    return (
        "?" if row.rank is None else str(row.rank),
        _ms(row.own_ms),
        _ms(row.iteration_ms),
        _ms(row.busy_ms),
        _ms(row.communication_ms),
        "?" if row.launches_per_step is None else f"{row.launches_per_step:,.0f}",
        _pct(row.launch_overhead_pct),
        _pct(row.removable_pct),
        (row.recommendation or "").replace("_", " "),
        row.name,
    )


def _ms(value: float | None) -> str:
    return "?" if value is None else f"{wording.figures(value)} ms"


def _pct(value: float | None) -> str:
    return "?" if value is None else wording.pct(value)


def _skew(skew: Skew) -> tuple[str, ...]:
    plain = skew.key == "launches_per_step"
    figures = [
        f"{value:,.0f}" if plain else _ms(value) for value in (skew.low, skew.middle, skew.high)
    ]
    return (_NAMES.get(skew.key, skew.key), *figures, "" if skew.pct is None else _pct(skew.pct))
