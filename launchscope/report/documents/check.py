"""What the report of a Check says: the answer, the limits, what changed, what to know."""

from __future__ import annotations

from launchscope.gate.wording import figure
from launchscope.model import Change, Check, LimitCheck, Outcome
from launchscope.report.document import (
    Cell,
    Column,
    Document,
    Paragraph,
    Section,
    Table,
    Tone,
    items,
    sections,
)
from launchscope.report.documents.labels import NO_TIMES, command, kernel, machine
from launchscope.rules.op_names import as_written
from launchscope.wording import place, plural

_OUTCOMES: dict[Outcome, tuple[str, Tone]] = {
    "passed": ("passed", "good"),
    "failed": ("failed", "bad"),
    "inconclusive": ("inconclusive", "caution"),
    "not_compared": ("not compared", "caution"),
}
_KINDS = {"blocker": "blocker", "op": "device operation", "kernel": "kernel"}
_STALE = "The baseline is stale: run again with --update-baseline to keep the improvement."


def document(check: Check, top: int) -> Document:
    """Everything a report shows of a Check, with the `top` changes."""
    outcome, tone = _OUTCOMES[check.outcome]
    badge, tone = ("baseline written", "calm") if check.written else (outcome, tone)
    failures = [f"{d.metric} {d.reason}" for d in check.limits if d.outcome == "failed"]
    source = (f"step at {place(check.source)}",) if check.source else ()
    return Document(
        badge=badge.upper(),
        tone=tone,
        title=command(check.target),
        headline=_headline(check),
        basis=_basis(check),
        context=(machine(check.environment), *source),
        sections=sections(
            _limits(check),
            items("Why it failed", failures) if len(failures) > 1 else None,
            _changes(check, top),
            items("Warnings", warnings(check)),
        ),
    )


def warnings(check: Check) -> tuple[str, ...]:
    """What a reader has to know beside the outcome, each once."""
    undecided = (
        f"{limit.metric}: {limit.reason}" for limit in check.limits if is_undecided(check, limit)
    )
    stale = (_STALE,) if check.stale and not check.written else ()
    return tuple(dict.fromkeys((*check.warnings, *undecided, *stale)))


def is_undecided(check: Check, limit: LimitCheck) -> bool:
    """Whether this limit was not decided although others were."""
    if limit.outcome == "not_compared":
        return check.outcome != "not_compared"
    return limit.outcome == "inconclusive"


def change_text(change: Change) -> str:
    """In half a sentence: `aten.mul +2 (3 to 5) at train.py:47`."""
    where = _where(change)
    moved = f"{_name(change)} {_moved(change)} ({change.before:g} to {change.after:g})"
    return f"{moved} at {where}" if where else moved


def _headline(check: Check) -> str:
    if check.written is None:
        return check.headline
    if check.baseline is None:
        return f"Wrote {check.written}, the first baseline of {check.workload}. Commit it."
    return f"Updated {check.written}. Compared with the previous baseline: {check.headline}"


def _basis(check: Check) -> str:
    kind = NO_TIMES if check.mode == "rehearsal" else "measured"
    runs = plural(check.processes, "process" if check.processes == 1 else "fresh process")
    against = () if check.baseline is None else (f"compared with {check.baseline}",)
    return " · ".join((kind, runs, *against))


def _limits(check: Check) -> Section | None:
    if not check.limits:
        return None
    columns = [
        Column("metric", "left", key=True, fit="wrap", code=True),
        Column("limit", code=True),
        Column("baseline"),
        Column("now"),
        Column("outcome", "left"),
    ]
    rows: list[tuple[Cell, ...]] = []
    for limit in check.limits:
        label, tone = _OUTCOMES[limit.outcome]
        before = _ranged(limit.baseline, limit.baseline_low, limit.baseline_high, limit.unit)
        now = _ranged(limit.value, limit.low, limit.high, limit.unit)
        known = Cell("" if limit.baseline is None else before)
        rows.append((Cell(limit.metric), Cell(limit.limit), known, Cell(now), Cell(label, tone)))
    if all(limit.baseline is None for limit in check.limits):
        del columns[2]
        rows = [(*row[:2], *row[3:]) for row in rows]
    return Section("Limits", (Table(tuple(columns), tuple(rows)),))


def _is_compared(check: Check) -> bool:
    return check.baseline is not None and check.outcome != "not_compared"


def _ranged(value: float | None, low: float | None, high: float | None, unit: str) -> str:
    text = figure(value, unit)
    if low is None or high is None or low == high:
        return text
    return f"{text} ({figure(low, unit)} to {figure(high, unit)})"


def _changes(check: Check, top: int) -> Section | None:
    if not check.changes:
        same = "Nothing: the same device operations, blockers, and kernels."
        return Section("What changed", (Paragraph(same),)) if _is_compared(check) else None
    columns = (
        Column("change"),
        Column("before"),
        Column("now"),
        Column("kind", "left"),
        Column("line", "left", fit="wrap", code=True),
        Column("name", "left", fit="wrap", code=True),
    )
    rows = tuple(
        (
            Cell(_moved(change), "bad" if change.appeared else "good"),
            Cell(f"{change.before:g}"),
            Cell(f"{change.after:g}"),
            Cell(_KINDS[change.kind]),
            Cell(_where(change)),
            Cell(_name(change)),
        )
        for change in check.changes[:top]
    )
    table = Table(columns, rows, len(check.changes) - len(rows))
    return Section("What changed, per step", (table,))


def _name(change: Change) -> str:
    if change.kind == "blocker":
        return as_written(change.name)
    return kernel(change.name) if change.kind == "kernel" else change.name


def _moved(change: Change) -> str:
    return f"{change.after - change.before:+g}"


def _where(change: Change) -> str:
    lines = ", ".join(map(place, change.where))
    return lines if change.appeared or not lines else f"{lines} of the baseline"
