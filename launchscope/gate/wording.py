"""Sentences of a CheckResult, with as many digits as make its numbers distinct."""

from __future__ import annotations

from collections.abc import Sequence

from launchscope.gate import metrics
from launchscope.model import LimitCheck, Outcome, PairedChange
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


def difference_unit(unit: str) -> str:
    """The unit of a difference of two figures."""
    return "pp" if unit == "%" else unit


def change_figure(change: PairedChange, value: float) -> str:
    """A change in its unit, with its sign: `+6.8 %`, `-0.31 ms`, `0`."""
    text = figure(value, change.change_unit, digits=3)
    return f"+{text}" if value > 0 else text


def reason_against_limit(limit: LimitCheck) -> str:
    bound, value = figure(limit.bound, limit.unit), figure(limit.value, limit.unit)
    higher = metrics.higher_is_better(limit.metric)
    if limit.outcome == "passed":
        return f"{value}; the limit allows {'at least' if higher else 'at most'} {bound}"
    text = f"is {value}, {'below' if higher else 'above'} the limit of {bound}"
    if limit.outcome == "failed":
        return text
    return f"{text}, but {figure(limit.high if higher else limit.low, limit.unit)} at best"


def reason_against_baseline(limit: LimitCheck, new_blockers: int | None) -> str:
    unit, passed = limit.unit, limit.outcome == "passed"
    higher = metrics.higher_is_better(limit.metric)
    digits = 4 if passed else _digits(limit.baseline, limit.value, limit.bound)
    before, now = figure(limit.baseline, unit, digits), figure(limit.value, unit, digits)
    if new_blockers:
        return f"went from {before} to {now}, {new_blockers} of them new"
    if limit.value == limit.baseline or (passed and now == before):
        if limit.outcome == "inconclusive":
            worst = figure(limit.low if higher else limit.high, unit)
            return f"{now}, but {worst} at worst; {before} in the baseline"
        return f"{now}, as in the baseline"
    rose = (limit.value or 0.0) > (limit.baseline or 0.0)
    moved = f"{'rose' if rose else 'fell'} from {before} to {now}"
    allowed = f"{'at least' if higher else 'at most'} {figure(limit.bound, unit, digits)}"
    if limit.outcome == "failed":
        return f"{moved}; the limit {limit.limit} allows {allowed}"
    if limit.outcome == "inconclusive":
        spread = f"{figure(limit.low, unit)} to {figure(limit.high, unit)}"
        return (
            f"{moved}, but its range ({spread}) overlaps the baseline's; the limit allows {allowed}"
        )
    return moved


def reason_added(limit: LimitCheck, added: float) -> str:
    """The reason for a count that includes work which the baseline never did."""
    before, now = figure(limit.baseline, limit.unit), figure(limit.value, limit.unit)
    more = figure(added, limit.unit)
    return f"{now} ({before} in the baseline): every iteration does {more} that none did before"


def reason_by_chance(limit: LimitCheck) -> str:
    """The reason for a count that is beyond its limit, and may be so in unchanged code."""
    before, now = figure(limit.baseline, limit.unit), figure(limit.value, limit.unit)
    moved = f"went from {before} to {now}"
    if limit.metric == "shape_signatures":
        return f"{moved}, but the number of shapes in a few steps can be chance"
    if limit.metric == metrics.BLOCKERS:
        return f"{moved}, but not in every step"
    return f"{moved}, but some iterations of the baseline did this work as well"


def reason_within_noise(limit: LimitCheck) -> str:
    """The reason for a timed limit that failed by less than unchanged code may differ."""
    before, now = figure(limit.baseline, limit.unit), figure(limit.value, limit.unit)
    moved = f"went from {before} to {now}"
    if limit.noise is None:
        return f"{moved}, but how much unchanged code differs on this machine is not known"
    noise = figure(limit.noise, difference_unit(limit.unit), 2)
    return f"{moved}, but unchanged code differs by {noise} on this machine"


def _digits(*values: float | None) -> int:
    """The fewest digits, from 4 to 9, with which these values differ."""
    different = {value for value in values if value is not None}
    enough = (d for d in range(4, 10) if len({f"{v:.{d}g}" for v in different}) == len(different))
    return next(enough, 4)


def headline(outcome: Outcome, decided: Sequence[LimitCheck], problem: str | None) -> str:
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
