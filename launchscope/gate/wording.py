"""Sentences of a CheckResult, with as many digits as make its numbers distinct."""

from __future__ import annotations

from collections.abc import Sequence

from launchscope.gate import metrics
from launchscope.model import Change, ChangeKind, LimitCheck, Outcome
from launchscope.reason_text import as_written
from launchscope.wording import listed, place


def figure(value: float | None, unit: str, digits: int = 4) -> str:
    """A number with its unit: `385`, `9.31 ms`, `61.7 %`; with at most this many digits."""
    if value is None:
        return "not measured"
    is_whole = float(value).is_integer() and unit == "1"
    # `g` would write a number with more digits as a power of ten.
    text = f"{value:,.0f}" if is_whole or abs(value) >= 10**digits else f"{value:.{digits}g}"
    if unit == "1":
        return text
    return f"{text}x" if unit == "x" else f"{text} {unit}"


def reason_against_limit(limit: LimitCheck) -> str:
    bound, value = figure(limit.bound, limit.unit), figure(limit.value, limit.unit)
    higher = metrics.higher_is_better(limit.metric)
    if limit.outcome == "passed":
        return f"came to {value}; the limit allows {'at least' if higher else 'at most'} {bound}"
    text = f"came to {value}, {'below' if higher else 'above'} the limit of {bound}"
    if limit.outcome == "failed":
        return text
    return f"{text}, but {figure(limit.low, limit.unit)} at best"


def reason_against_baseline(limit: LimitCheck, new_blockers: int = 0) -> str:
    unit, passed = limit.unit, limit.outcome == "passed"
    digits = 4 if passed else _digits(limit.baseline, limit.value, limit.bound)
    before, now = figure(limit.baseline, unit, digits), figure(limit.value, unit, digits)
    if new_blockers:
        return f"went from {before} to {now}, {new_blockers} of them new"
    if limit.value == limit.baseline or (passed and now == before):
        if limit.outcome == "inconclusive":
            return f"stayed at {now}, but came to {figure(limit.high, unit)} in a step"
        return f"stayed at {now}"
    rose = (limit.value or 0.0) > (limit.baseline or 0.0)
    moved = f"{'rose' if rose else 'fell'} from {before} to {now}"
    allowed = f"at most {figure(limit.bound, unit, digits)}"
    if limit.outcome == "failed":
        return f"{moved}; the limit {limit.limit} allows {allowed}"
    if limit.outcome == "inconclusive":
        spread = f"{figure(limit.low, unit)} to {figure(limit.high, unit)}"
        return f"{moved}, but not in every step ({spread}); the limit allows {allowed}"
    return moved


def _digits(*values: float | None) -> int:
    """The fewest digits, from 4 to 9, with which these values differ."""
    different = {value for value in values if value is not None}
    enough = (d for d in range(4, 10) if len({f"{v:.{d}g}" for v in different}) == len(different))
    return next(enough, 4)


def headline(
    outcome: Outcome,
    decided: Sequence[LimitCheck],
    changes: Sequence[Change],
    problem: str | None,
    upgrade: str | None,
) -> str:
    """One sentence about all limits. A failure begins with the line that is to blame."""
    chosen = [d for d in decided if d.outcome == outcome]
    if outcome == "failed":
        more = f" ({len(chosen) - 1} more failed)" if len(chosen) > 1 else ""
        blame, text = _blame(chosen[0], changes), f"{labeled(chosen[0])}{more}."
        return f"{blame}{text}" if blame else f"{text[0].upper()}{text[1:]}"
    if outcome == "not_compared":
        first = labeled(chosen[0]) if chosen else "no limit is in force"
        return f"Nothing was compared: {problem or first}."
    if outcome == "inconclusive":
        names = listed([metrics.label(d.metric) for d in chosen])
        if upgrade:
            return f"No limit failed, because {upgrade}. Changed or undecided: {names}."
        return f"No limit failed. Undecided: {names}, whose runs vary too much to tell."
    return _passed(decided)


def _passed(decided: Sequence[LimitCheck]) -> str:
    compared = [d for d in decided if d.outcome != "not_compared"]
    skipped = listed([metrics.label(d.metric) for d in decided if d.outcome == "not_compared"])
    better = listed([metrics.label(d.metric) for d in compared if d.better])
    count = len(compared)
    within = "Within its limit" if count == 1 else f"Within all {count} limits"
    if skipped:
        others = "limit" if count == 1 else f"{count} limits"
        within = f"Not evaluated: {skipped}. Within the other {others}"
    stale = f" The baseline is stale: {better} improved." if better else ""
    return f"{within}.{stale}"


def labeled(limit: LimitCheck) -> str:
    """The reason of a limit with what it is about: `launches per step rose from 555 to 556`."""
    colon = ":" if limit.outcome == "not_compared" else ""
    return f"{metrics.label(limit.metric)}{colon} {limit.reason}"


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


def _blame(limit: LimitCheck, changes: Sequence[Change]) -> str:
    """`train.py:29 now runs aten.mul: `, or nothing where no line is known to be the cause."""
    is_between = limit.metric.startswith("between_")
    causes = _CAUSES.get(limit.metric, ()) if limit.relative else ()
    found = (
        change
        for kind in causes
        for change in changes
        if change.appeared and change.where and (change.kind, change.between) == (kind, is_between)
    )
    change = next(found, None)
    if change is None:
        return ""
    line = place(change.where[0])
    if change.kind == "kernel":
        return f"{line} now launches more kernels: "
    name = as_written(change.name) if change.kind == "blocker" else change.name
    return f"{line} now runs {name}{' more often' if change.before else ''}: "
