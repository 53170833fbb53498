"""Sentences of a CheckResult."""

from __future__ import annotations

from collections.abc import Sequence

from launchscope.gate import metrics
from launchscope.model import Change, ChangeKind, LimitCheck, Outcome
from launchscope.reason_text import as_written
from launchscope.wording import NOT_MEASURED, listed, place, plural

# The kinds of changes that a count rests on, the likeliest first.
_CAUSES: dict[str, tuple[ChangeKind, ...]] = {
    "launches_per_step": ("kernel", "op"),
    "device_ops_per_step": ("op",),
    "syncs_per_step": ("blocker",),
    metrics.BLOCKERS: ("blocker",),
    "between_launches": ("kernel", "op"),
    "between_ops": ("op",),
    "between_syncs": ("blocker",),
}


def figure(value: float | None, unit: str) -> str:
    """A number with its unit: `12,345.4`, `9.31 ms`; to three decimals, because a rounder one may
    look like its limit."""
    if value is None:
        return NOT_MEASURED
    number = f"{round(float(value), 3):,}".removesuffix(".0")
    return number if unit == "1" else f"{number} {unit}"


def ranged(value: float | None, low: float | None, high: float | None, unit: str) -> str:
    """`555 (555 to 556)`, with the range of a count that varies."""
    text = figure(value, unit)
    return text if low == high else f"{text} ({figure(low, unit)} to {figure(high, unit)})"


def reason(limit: LimitCheck, new_blockers: int = 0) -> str:
    """How the metric moved, and what the limit allows if it does not pass."""
    before, now = limit.baseline, ranged(limit.value, limit.low, limit.high, limit.unit)
    if not limit.relative or before is None or limit.value is None:
        text = f"came to {now}"
    elif limit.value == before:
        text = f"stayed at {now}"
    else:
        moved = "rose" if limit.value > before else "fell"
        text = f"{moved} from {figure(before, limit.unit)} to {now}"
    text += f", {new_blockers} of them new" if new_blockers else ""
    if limit.outcome == "passed":
        return text
    most = "at least" if metrics.higher_is_better(limit.metric) else "at most"
    return f"{text}; the limit allows {most} {figure(limit.bound, limit.unit)}"


def headline(
    outcome: Outcome,
    decided: Sequence[LimitCheck],
    changes: Sequence[Change],
    problem: str | None,
    upgrade: str | None,
) -> str:
    """One sentence about all limits. A failure begins with the line that is to blame."""
    chosen = [d for d in decided if d.outcome == outcome]
    names = listed([metrics.label(d.metric) for d in chosen])
    if outcome == "failed":
        more = f" ({len(chosen) - 1} more failed)" if len(chosen) > 1 else ""
        blame, text = _blame(chosen[0], changes), f"{labeled(chosen[0])}{more}."
        return f"{blame}{text}" if blame else f"{text[0].upper()}{text[1:]}"
    if outcome == "not_compared":
        first = labeled(chosen[0]) if chosen else "no limit is in force"
        return f"Nothing was compared: {problem or first}."
    if outcome == "inconclusive":
        return f"No limit failed. Undecided, because {upgrade or 'runs vary'}: {names}."
    skipped = listed([metrics.label(d.metric) for d in decided if d.outcome == "not_compared"])
    better = listed([metrics.label(d.metric) for d in decided if d.better])
    return (
        f"{plural(len(chosen), 'limit')} passed."
        + (f" Not evaluated: {skipped}." if skipped else "")
        + (f" The baseline is stale: {better} improved." if better else "")
    )


def labeled(limit: LimitCheck) -> str:
    """The reason of a limit with what it is about: `launches per step rose from 555 to 556`."""
    colon = ":" if limit.outcome == "not_compared" else ""
    return f"{metrics.label(limit.metric)}{colon} {limit.reason}"


def _blame(limit: LimitCheck, changes: Sequence[Change]) -> str:
    """`train.py:29 now runs aten.mul: `, or nothing where no line is known to be the cause."""
    is_between = limit.metric.startswith("between_")
    causes = _CAUSES.get(limit.metric, ()) if limit.relative else ()
    for kind in causes:
        for change in changes:
            is_cause = (change.kind, change.between) == (kind, is_between)
            if is_cause and change.appeared and change.where:
                name = as_written(change.name) if kind == "blocker" else change.name
                what = "launches more kernels" if kind == "kernel" else f"runs {name}"
                return f"{place(change.where[0])} now {what}: "
    return ""
