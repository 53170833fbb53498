"""The report of a Difference: metrics and kernels that changed."""

from __future__ import annotations

from pathlib import Path

from launchscope.model import Difference, Metric
from launchscope.model.comparison import KernelDifference, MetricChange, Side
from launchscope.report.document import (
    Cell,
    Column,
    Document,
    Section,
    Table,
    measured,
    notes,
    sections,
)
from launchscope.report.documents.labels import VERDICTS, kernel
from launchscope.wording import change, count, figures, plural

# Changes of less than this are not shown unless they are beyond the spread.
_LEAST_PCT = 1.0
_NOTHING = 1e-6  # what a subtraction of equal times may leave
# What the headline says, where both sides have it.
_LEADING = {
    "iteration_ms": "iteration",
    "step_ms": "step",
    "gpu_busy_ms": "GPU busy",
    "launches_per_step": "launches per step",
}
_STATES = ("changed", "appeared", "vanished")


def document(value: Difference, top: int) -> Document:
    """Metrics that changed, and the `top` kernels of each state by GPU time."""
    shown = [found for found in value.metrics if _is_shown(found)]
    same = f"{plural(len(value.metrics) - len(shown), 'metric')} and "
    same += plural(value.same_kernels, "kernel")
    return Document(
        badge="DIFFERENCE",
        tone="calm",
        title=f"{Path(value.before.name).name} → {Path(value.after.name).name}",
        headline=_headline(value),
        context=(_side("before", value.before), _side("after", value.after)),
        sections=sections(
            _metrics(shown),
            *(_kernels(value, state, top) for state in _STATES),
            notes((*value.notes, f"{same} are unchanged")),
        ),
    )


def _side(which: str, side: Side) -> str:
    parts = [f"{which}: {side.name}", side.device or "no named device", f"step: {side.step}"]
    if side.recommendation is not None:
        parts.append(VERDICTS[side.recommendation][0])
    return " · ".join(parts)


def _headline(value: Difference) -> str:
    leading = {found.key: found for found in value.metrics if found.key in _LEADING}
    leads = [
        f"{name} {moved(leading[key])}"
        for key, name in _LEADING.items()
        if key in leading
        and abs(leading[key].change_pct or 0.0) >= _LEAST_PCT
        and moved(leading[key])
    ]
    numbers = {state: sum(found.state == state for found in value.kernels) for state in _STATES}
    counts = [f"{number} {state}" for state, number in numbers.items() if number]
    first = ", ".join(leads) or ("same times and launches" if leading else "no metric in common")
    second = f"kernels: {', '.join(counts)}" if counts else "the kernels are the same"
    return f"{first[0].upper()}{first[1:]}; {second}."


def _is_shown(found: MetricChange) -> bool:
    if found.before is None or found.after is None:
        return True
    if max(abs(found.before), abs(found.after)) < _NOTHING:
        return False
    if found.change_pct is None:
        return found.before != found.after
    return abs(found.change_pct) >= _LEAST_PCT or found.beyond_spread is True


def _metrics(changes: list[MetricChange]) -> Section:
    def spread(found: MetricChange) -> Cell:
        return Cell("within the spread" if found.beyond_spread is False else "", "dim")

    table = Table.of(
        changes,
        (Column("metric", "left", key=True, fit="wrap", code=True), lambda found: found.key),
        (Column("before"), lambda found: figure(found.before, found.unit)),
        (Column("after"), lambda found: figure(found.after, found.unit)),
        (Column("change"), moved),
        (Column("", "left", fit="wrap"), spread),
    )
    return Section("Metrics", (table,))


def moved(found: MetricChange) -> str:
    """The change; of a share in points, because a percentage of a percentage misleads."""
    if found.before is None or found.after is None or abs(found.before) < _NOTHING:
        return ""
    if found.unit == "%":
        return f"{found.after - found.before:+.1f} points"
    return change(found.before, found.after)


def figure(value: float | None, unit: str) -> Cell:
    return measured(Metric(0.0 if value and abs(value) < _NOTHING else value, unit))


def _kernels(value: Difference, state: str, top: int) -> Section:
    found = [row for row in value.kernels if row.state == state]

    def slower(row: KernelDifference) -> Cell:
        return Cell(f"{row.change_us:+,.1f} us", "bad" if row.change_us > 0 else "good")

    table = Table.of(
        found,
        (Column("count"), _counts),
        (Column("before"), lambda row: f"{figures(row.before_us)} us"),
        (Column("after"), lambda row: f"{figures(row.after_us)} us"),
        (Column("change"), slower),
        (Column("kernel", "left", fit="cut", code=True), lambda row: kernel(row.name)),
        top=top,
    )
    return Section(f"Kernels that {state} ({len(found)})", (table,))


def _counts(row: KernelDifference) -> str:
    before, after = count(row.before_count), count(row.after_count)
    return before if before == after else f"{before} → {after}"
