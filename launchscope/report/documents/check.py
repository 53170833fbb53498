"""The report of a Check: the answer, the limits, the changes, the warnings."""

from __future__ import annotations

from launchscope.gate.wording import figure
from launchscope.model import Change, Check, LimitCheck, Outcome
from launchscope.op_names import as_written
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
from launchscope.wording import count, place, plural

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
    """What the reader has to know besides the outcome, each once."""
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
    table = Table.of(
        check.limits,
        (Column("metric", "left", key=True, fit="wrap", code=True), lambda limit: limit.metric),
        (Column("limit", code=True), lambda limit: limit.limit),
        (Column("baseline"), _before),
        (Column("now"), lambda limit: _ranged(limit.value, limit.low, limit.high, limit.unit)),
        (Column("outcome", "left"), lambda limit: Cell(*_OUTCOMES[limit.outcome])),
    )
    return Section("Limits", (table,))


def _before(limit: LimitCheck) -> str:
    if limit.baseline is None:
        return ""
    return _ranged(limit.baseline, limit.baseline_low, limit.baseline_high, limit.unit)


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
    table = Table.of(
        check.changes,
        (Column("change"), lambda found: Cell(_moved(found), "bad" if found.appeared else "good")),
        (Column("before"), lambda found: count(found.before)),
        (Column("now"), lambda found: count(found.after)),
        (Column("kind", "left"), lambda found: _KINDS[found.kind]),
        (Column("line", "left", fit="wrap", code=True), _where),
        (Column("name", "left", fit="wrap", code=True), _name),
        top=top,
    )
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
