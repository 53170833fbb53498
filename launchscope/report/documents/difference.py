"""The report of a Difference: metrics and kernels that changed."""

from __future__ import annotations

from pathlib import Path

from launchscope.gate.metrics import higher_is_better, label
from launchscope.model import Difference, Metric
from launchscope.model.comparison import MetricChange, Side
from launchscope.report import frames
from launchscope.report.document import (
    Cell,
    Column,
    Document,
    Section,
    Table,
    code,
    measured,
    notes,
    sections,
    words,
)
from launchscope.report.documents.labels import VERDICTS, kernel
from launchscope.wording import change, count, plural, us

# Changes of less than this are not shown unless they are beyond the spread.
_LEAST_PCT = 1.0
_NOTHING = 1e-6  # what a subtraction of equal times may leave
# What the headline says.
_LEADING = ("iteration_ms", "step_ms", "gpu_busy_ms", "launches_per_step")


def document(value: Difference, top: int) -> Document:
    """Metrics that changed, and the `top` kernels by GPU time."""
    hidden = sum(not _is_shown(found) for found in value.metrics)
    same = f"{plural(hidden, 'metric')} and {plural(value.same_kernels, 'kernel')} are unchanged"
    return Document(
        badge="DIFFERENCE",
        tone="calm",
        title=f"{Path(value.before.name).name} → {Path(value.after.name).name}",
        headline=_headline(value),
        context=(_side("before", value.before), _side("after", value.after)),
        sections=sections(_metrics(value), _kernels(value, top), notes((*value.notes, same))),
    )


def _side(which: str, side: Side) -> str:
    parts = [f"{which}: {side.name}", side.device or "no named device", f"step: {side.step}"]
    if side.recommendation is not None:
        parts.append(VERDICTS[side.recommendation][0])
    return " · ".join(parts)


def _headline(value: Difference) -> str:
    leads = [
        f"{label(found.key)} {text}"
        for found in value.metrics
        if found.key in _LEADING
        and abs(found.change_pct or 0.0) >= _LEAST_PCT
        and (text := _moved(found.before, found.after, found.unit))
    ]
    first = ", ".join(leads) or "times and launches are the same"
    return f"{first[0].upper()}{first[1:]}; {plural(len(value.kernels), 'kernel')} changed."


def _is_shown(found: MetricChange) -> bool:
    if found.before is None or found.after is None:
        return True
    if max(abs(found.before), abs(found.after)) < _NOTHING:
        return False
    if found.change_pct is None:
        return found.before != found.after
    return abs(found.change_pct) >= _LEAST_PCT or found.beyond_spread is True


def _metrics(value: Difference) -> Section:
    changes = frames.metric_changes(value)
    table = Table.of(
        changes[[_is_shown(change) for change in value.metrics]],
        words("metric", "key", label, key=True, fit="wrap"),
        Column("before", ("before", "unit"), figure),
        Column("after", ("after", "unit"), figure),
        Column("change", ("before", "after", "unit", "key", "beyond_spread"), _judged),
    )
    return Section("Metrics", (table,))


def _judged(
    before: float | None, after: float | None, unit: str, key: str, is_beyond: bool | None
) -> Cell:
    """The change, colored as better or worse. More of a share may be either."""
    text = _moved(before, after, unit)
    if is_beyond is False:
        return Cell(f"{text} (within the spread)", "dim")
    if not text or unit == "%" or before is None or after is None:
        return Cell(text)
    return Cell(text, "good" if (after > before) == higher_is_better(key) else "bad")


def _moved(before: float | None, after: float | None, unit: str) -> str:
    """The change; of a share in points, because a percentage of a percentage misleads."""
    if before is None or after is None or abs(before) < _NOTHING:
        return ""
    return f"{after - before:+.1f} points" if unit == "%" else change(before, after)


def figure(value: float | None, unit: str) -> Cell:
    return measured(Metric(0.0 if value and abs(value) < _NOTHING else value, unit))


def _kernels(value: Difference, top: int) -> Section:
    table = Table.of(
        frames.kernel_changes(value),
        words("", "state"),
        Column("count", "before_count", count),
        Column("after", "after_count", count),
        Column("GPU time", "before_us", us),
        Column("after", "after_us", us),
        Column("change", "change_us", _slower),
        code("kernel", "name", kernel, key=True, fit="cut"),
        top=top,
    )
    return Section("Kernels that changed", (table,))


def _slower(change_us: float) -> Cell:
    return Cell(f"{change_us:+,.1f} us", "bad" if change_us > 0 else "good")
