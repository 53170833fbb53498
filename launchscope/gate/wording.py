"""Sentences of a CheckResult, with as many digits as make its numbers distinct."""

from __future__ import annotations

from collections.abc import Sequence

from launchscope.gate import metrics
from launchscope.model import LimitCheck, Outcome
from launchscope.wording import listed


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
        return f"{value}; the limit allows {'at least' if higher else 'at most'} {bound}"
    text = f"is {value}, {'below' if higher else 'above'} the limit of {bound}"
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
            return f"{now}, but {figure(limit.high, unit)} at worst; {before} in the baseline"
        return f"{now}, as in the baseline"
    rose = (limit.value or 0.0) > (limit.baseline or 0.0)
    moved = f"{'rose' if rose else 'fell'} from {before} to {now}"
    allowed = f"at most {figure(limit.bound, unit, digits)}"
    if limit.outcome == "failed":
        return f"{moved}; the limit {limit.limit} allows {allowed}"
    if limit.outcome == "inconclusive":
        spread = f"{figure(limit.low, unit)} to {figure(limit.high, unit)}"
        return f"{moved}, but not in every step or process ({spread}); the limit allows {allowed}"
    return moved


def _digits(*values: float | None) -> int:
    """The fewest digits, from 4 to 9, with which these values differ."""
    different = {value for value in values if value is not None}
    enough = (d for d in range(4, 10) if len({f"{v:.{d}g}" for v in different}) == len(different))
    return next(enough, 4)


def headline(
    outcome: Outcome, decided: Sequence[LimitCheck], problem: str | None, upgrade: str | None
) -> str:
    """One sentence about all limits."""
    chosen = [d for d in decided if d.outcome == outcome]
    if outcome == "failed":
        more = f" ({len(chosen) - 1} more failed)" if len(chosen) > 1 else ""
        return f"{chosen[0].metric} {chosen[0].reason}{more}."
    if outcome == "not_compared":
        first = f"{chosen[0].metric}: {chosen[0].reason}" if chosen else "no limit is in force"
        return f"Nothing was compared: {problem or first}."
    if outcome == "inconclusive":
        names = listed([d.metric for d in chosen])
        if upgrade:
            return f"No limit failed, because {upgrade}. Changed or undecided: {names}."
        return f"No limit failed. Undecided: {names}, whose runs vary too much to tell."
    compared = [d for d in decided if d.outcome != "not_compared"]
    skipped = [d.metric for d in decided if d.outcome == "not_compared"]
    better = [d.metric for d in compared if d.better]
    count = len(compared)
    within = "Within its limit" if count == 1 else f"Within all {count} limits"
    if skipped:
        within = (
            f"{', '.join(skipped)} could not be evaluated. Within the other "
            f"{'limit' if count == 1 else f'{count} limits'}"
        )
    stale = f" The baseline is stale: {', '.join(better)} improved." if better else ""
    return f"{within}.{stale}"
