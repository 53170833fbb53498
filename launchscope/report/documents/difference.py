"""The report of a Difference: metrics and kernels that changed."""

from __future__ import annotations

from pathlib import Path

from launchscope.gate.metrics import higher_is_better, label
from launchscope.model import Difference, Metric
from launchscope.model.comparison import MetricChange, Side
from launchscope.report import frames
from launchscope.report.document import (
    EMPTY,
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
    hidden = sum(not _is_shown(found) for found in value.metrics)
    same = f"{plural(hidden, 'metric')} and "
    same += plural(value.same_kernels, "kernel")
    return Document(
        badge="DIFFERENCE",
        tone="calm",
        title=f"{Path(value.before.name).name} → {Path(value.after.name).name}",
        headline=_headline(value),
        context=(_side("before", value.before), _side("after", value.after)),
        sections=sections(
            _metrics(value),
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
        f"{_LEADING[key]} {text}"
        for key in _LEADING
        if (found := leading.get(key)) is not None
        and abs(found.change_pct or 0.0) >= _LEAST_PCT
        and (text := moved(found.before, found.after, found.unit))
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


def _metrics(value: Difference) -> Section:
    changes = frames.metric_changes(value)
    table = Table.of(
        changes[[_is_shown(change) for change in value.metrics]],
        words("metric", "key", label, key=True, fit="wrap"),
        Column("before", ("before", "unit"), figure),
        Column("after", ("after", "unit"), figure),
        Column("change", ("before", "after", "unit", "key", "beyond_spread"), _judged),
        words("", "beyond_spread", _spread, fit="wrap", missing=EMPTY),
    )
    return Section("Metrics", (table,))


def _spread(is_beyond: bool) -> Cell:
    return EMPTY if is_beyond else Cell("within the spread", "dim")


def _judged(
    before: float | None, after: float | None, unit: str, key: str, is_beyond: bool | None
) -> Cell:
    """The change, colored as better or worse. More of a share may be either."""
    text = moved(before, after, unit)
    if not text or unit == "%" or is_beyond is False or before is None or after is None:
        return Cell(text)
    return Cell(text, "good" if (after > before) == higher_is_better(key) else "bad")


def moved(before: float | None, after: float | None, unit: str) -> str:
    """The change; of a share in points, because a percentage of a percentage misleads."""
    if before is None or after is None or abs(before) < _NOTHING:
        return ""
    return f"{after - before:+.1f} points" if unit == "%" else change(before, after)


def figure(value: float | None, unit: str) -> Cell:
    return measured(Metric(0.0 if value and abs(value) < _NOTHING else value, unit))


def _kernels(value: Difference, state: str, top: int) -> Section:
    found = frames.kernel_changes(value)
    found = found[found["state"] == state]
    table = Table.of(
        found,
        Column("count", ("before_count", "after_count"), _counts),
        Column("before", "before_us", us),
        Column("after", "after_us", us),
        Column("change", "change_us", _slower),
        code("kernel", "name", kernel, fit="cut"),
        top=top,
    )
    return Section(f"Kernels that {state} ({len(found)})", (table,))


def _slower(change_us: float) -> Cell:
    return Cell(f"{change_us:+,.1f} us", "bad" if change_us > 0 else "good")


def _counts(before: float, after: float) -> str:
    one, other = count(before), count(after)
    return one if one == other else f"{one} → {other}"
