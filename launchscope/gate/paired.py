"""Decides limits from runs of two versions in pairs: counts exactly, times by the interval of their
change. A timed limit fails only if the whole interval is beyond what it allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import expm1, log
from statistics import median

from launchscope.gate import metrics
from launchscope.gate.baseline import Baseline
from launchscope.gate.comparability import mismatch
from launchscope.gate.decide import check_profile, outcome_of, strictly
from launchscope.gate.interval import fewest_pairs, shift
from launchscope.gate.limits import Limit
from launchscope.gate.measurement import merged, range_of
from launchscope.gate.wording import change_figure, difference_unit, headline
from launchscope.model import (
    CheckResult,
    Disturbance,
    LimitCheck,
    PairedChange,
    PairedRuns,
    Profile,
)
from launchscope.wording import plural

CONFIDENCE_PCT = 99.0
_OTHER_CLOCK = 0.03  # the share by which the clocks of a pair may differ

Pairs = Sequence[tuple[Profile, Profile]]  # the base version and the current one


def check_pairs(
    pairs: Pairs,
    runs: PairedRuns,
    limits: Sequence[Limit],
    *,
    workload: str,
    strict: bool = False,
    disturbed: Pairs = (),
    warnings: Sequence[str] = (),
) -> CheckResult:
    """The CheckResult of at least one pair. `disturbed` ones count, and have no times; `warnings`
    come before its own."""
    before, now = (merged([pair[side] for pair in (*pairs, *disturbed)]) for side in (0, 1))
    place = f"{runs.reference} ({runs.commit[:12]})"
    result = check_profile(now, Baseline(before, place), limits, workload=workload)
    comparable = mismatch(now, before) is None
    by_metric = {limit.metric: limit for limit in limits}
    decided = []
    for found in result.limits:
        if found.relative and metrics.is_timed(found.metric) and found.baseline is not None:
            found = _decided(found, by_metric[found.metric], pairs)
        # There is no file that could be stale.
        found = strictly(found) if strict and (comparable or not found.relative) else found
        decided.append(replace(found, better=False, noise=None))
    outcome = outcome_of(decided)
    changes = (_change(pairs, before, now, name) for name in metrics.UNITS)
    return replace(
        result,
        outcome=outcome,
        headline=headline(outcome, decided, None),
        limits=tuple(decided),
        timings=(),
        warnings=(*warnings, *result.warnings),
        paired=replace(runs, changes=tuple(found for found in changes if found is not None)),
    )


def disturbance(base: Profile, current: Profile) -> Disturbance | None:
    """Why two runs cannot be compared as a pair; None if nothing is known against it."""
    if base.facts.throttled or current.facts.throttled:
        return "throttled"
    clocks = [clock for p in (base, current) if (clock := p.facts.sm_clock_mhz) is not None]
    apart = bool(clocks) and max(clocks) > min(clocks) * (1 + _OTHER_CLOCK)
    return "other_clock" if apart else None


def default_timed_limit(tolerance_pct: float) -> Limit:
    """The limit on the iteration that is in force besides the exact ones."""
    text = f"+{tolerance_pct:g}%"
    return Limit("iteration_ms", text, "default", True, tolerance_pct / 100.0, share=True)


def _decided(found: LimitCheck, limit: Limit, pairs: Pairs) -> LimitCheck:
    change = _timed_change(pairs, limit.metric, in_shares=limit.share)
    if change is None:
        if not pairs:
            return replace(found, outcome="inconclusive", reason="every pair of runs was disturbed")
        return replace(found, outcome="not_compared", reason="not measured in both versions")
    if change.low is None or change.high is None:
        needed = fewest_pairs(CONFIDENCE_PCT / 100)
        reason = f"{plural(len(change.pairs), 'pair')} cannot decide it: it takes {needed}"
        return replace(found, outcome="inconclusive", reason=reason)
    allowed = 100 * limit.amount if change.change_unit == "%" else limit.allowance(change.base)
    worse = -1.0 if metrics.higher_is_better(limit.metric) else 1.0
    best, worst = sorted((worse * change.low, worse * change.high))
    middle, low, high = (
        change_figure(change, value) for value in (change.change, change.low, change.high)
    )
    moved = f"changed by {middle} (between {low} and {high})"
    if best > allowed:
        reason = f"{moved}; the limit is {limit.text}"
        return replace(found, outcome="failed", reason=reason)
    if worst <= allowed:
        return replace(found, outcome="passed", reason=moved)
    text = f"{moved}, which does not decide on the limit {limit.text}"
    return replace(found, outcome="inconclusive", reason=text)


def _change(pairs: Pairs, before: Profile, now: Profile, metric: str) -> PairedChange | None:
    """None where one of the versions does not have the metric."""
    if metrics.is_timed(metric):
        return _timed_change(pairs, metric, in_shares=metrics.UNITS[metric] != "%")
    old, new = range_of(before, metric), range_of(now, metric)
    if old is None or new is None:
        return None
    return PairedChange(
        metric,
        metrics.UNITS[metric],
        old.value,
        new.value,
        float(new.value - old.value),
        float(new.low - old.high),
        float(new.high - old.low),
        metrics.UNITS[metric],
        exact=old.exact and new.exact,
    )


def _timed_change(pairs: Pairs, metric: str, *, in_shares: bool) -> PairedChange | None:
    """The change in percent of the base version; in the metric's unit if a value is zero."""
    both = tuple(
        (old, new)
        for base, current in pairs
        if (old := base.value(metric)) is not None and (new := current.value(metric)) is not None
    )
    if not both:
        return None
    unit = metrics.UNITS[metric]
    in_shares = in_shares and all(old > 0 and new > 0 for old, new in both)
    found = shift(
        [log(new / old) if in_shares else new - old for old, new in both], CONFIDENCE_PCT / 100
    )

    def change(shift: float) -> float:
        return 100 * expm1(shift) if in_shares else shift

    return PairedChange(
        metric,
        unit,
        median(old for old, _ in both),
        median(new for _, new in both),
        change(found.middle),
        None if found.low is None else change(found.low),
        None if found.high is None else change(found.high),
        "%" if in_shares else difference_unit(unit),
        pairs=both,
    )
