"""The report of a CheckResult: the answer, the limits, the changes, the warnings."""

from __future__ import annotations

from launchscope.gate.metrics import label
from launchscope.gate.wording import labeled, ranged
from launchscope.model import Change, CheckResult, Outcome
from launchscope.reason_text import as_written
from launchscope.report.document import (
    EMPTY,
    Cell,
    Column,
    Document,
    Paragraph,
    Section,
    Table,
    Tone,
    code,
    items,
    sections,
    words,
)
from launchscope.report.documents.labels import NO_TIMES, command, kernel, machine, periodic_work
from launchscope.wording import count, place, plural, sentence

_TONES: dict[Outcome, Tone] = {"passed": "good", "failed": "bad"}
KINDS = {
    "blocker": "blocker", "op": "device operation", "kernel": "kernel", "operator": "launches",
    "work": "periodic work",
}  # fmt: skip
_STALE = "The baseline is stale: run again with --update-baseline to keep the improvement."


def document(check: CheckResult, top: int) -> Document:
    """Everything a report shows of a CheckResult, with the `top` changes."""
    answer = Cell("baseline written", "calm") if check.written else _answer(check.outcome)
    failures = [sentence(labeled(d)) for d in check.limits if d.outcome == "failed"]
    parts, context = ["not measured"], []
    if check.processes:
        measured = NO_TIMES if check.mode == "rehearsal" else "measured"
        parts = [measured, plural(check.processes, "process")]
        context = [machine(check.environment)]
    if check.source:
        context.append(f"step at {place(check.source)}")
    if check.baseline is not None:
        parts.append(f"compared with {check.baseline}")
    return Document(
        badge=answer.text.upper(),
        tone=answer.tone,
        title=command(check.target),
        headline=_headline(check),
        basis=" · ".join(parts),
        context=tuple(context),
        sections=sections(
            _limits(check),
            items("Why it failed", failures if len(failures) > 1 else ()),
            _changes(check, top),
            items("Between steps, not in every iteration", map(periodic_work, check.periodic)),
            items("Warnings", warnings(check)),
        ),
    )


def _answer(outcome: Outcome) -> Cell:
    return Cell(outcome.replace("_", " "), _TONES.get(outcome, "caution"))


def _headline(check: CheckResult) -> str:
    if check.written is None:
        return check.headline
    if check.baseline is None:
        return f"Wrote {check.written}, the first baseline of {check.workload}. Commit it."
    return f"Updated {check.written}. Compared with the previous baseline: {check.headline}"


def warnings(check: CheckResult) -> tuple[str, ...]:
    """What the reader has to know besides the outcome, each once."""
    doubts = (
        {"inconclusive"} if check.outcome == "not_compared" else {"inconclusive", "not_compared"}
    )
    undecided = [labeled(limit) for limit in check.limits if limit.outcome in doubts]
    stale = [_STALE] if check.stale and not check.written else []
    return tuple(dict.fromkeys(map(sentence, (*check.warnings, *undecided, *stale))))


def change_text(change: Change) -> str:
    """In half a sentence: `aten.mul +2 (3 to 5) at train.py:47`."""
    where = _where(change)
    moved = f"{_name(change).text} {_moved(change)} ({change.before:g} to {change.after:g})"
    moved += " between steps" if change.between and change.kind != "work" else ""
    return f"{moved} at {where}" if where else moved


def _limits(check: CheckResult) -> Section:
    before = ("baseline", "baseline_low", "baseline_high", "unit")
    table = Table.of(
        check.limits,
        words("metric", "metric", label, key=True, fit="wrap"),
        Column("limit", "limit", code=True),
        Column("baseline", before, lambda *f: None if f[0] is None else ranged(*f), missing=EMPTY),
        Column("now", ("value", "low", "high", "unit"), ranged),
        words("outcome", "outcome", _answer),
    )
    return Section("Limits", (table,))


def _changes(check: CheckResult, top: int) -> Section:
    if not check.changes and check.baseline is not None and check.outcome != "not_compared":
        same = "Nothing: the same device operations, blockers, and kernels."
        return Section("What changed", (Paragraph(same),))
    table = Table.of(
        [{"found": c, "before": c.before, "after": c.after} for c in check.changes],
        Column("change", "found", lambda c: Cell(_moved(c), "bad" if c.appeared else "good")),
        Column("before", "before", count),
        Column("now", "after", count),
        words("kind", "found", _kind),
        code("line", "found", _where, fit="wrap"),
        code("name", "found", _name, key=True, fit="wrap"),
        top=top,
    )
    return Section("What changed, per step", (table,))


def _kind(change: Change) -> str:
    return f"{KINDS[change.kind]} between steps" if change.between else KINDS[change.kind]


def _name(change: Change) -> Cell:
    if change.kind == "kernel":
        return kernel(change.name)
    if change.kind == "blocker":
        return Cell(as_written(change.name))
    return Cell(label(change.name) if change.kind == "work" else change.name)


def _moved(change: Change) -> str:
    return f"{change.after - change.before:+g}"


def _where(change: Change) -> str:
    lines = ", ".join(map(place, change.where))
    return lines if change.appeared or not lines else f"{lines} of the baseline"
