"""Decides each limit. A count fails if its lowest is above the highest of the baseline by more than
the limit allows, and is inconclusive if only its middle is; a time fails by its median. What fails
has failed in each of the fresh processes that were measured."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from launchscope.gate import metrics
from launchscope.gate.baseline import Baseline
from launchscope.gate.changes import changes, new_blockers
from launchscope.gate.comparability import mismatch, upgrade, warnings
from launchscope.gate.limits import Limit
from launchscope.gate.measurement import Range, range_of
from launchscope.gate.wording import headline, reason
from launchscope.model import CheckResult, LimitCheck, Outcome, Profile
from launchscope.wording import NOT_MEASURED

# From best to worst, for one limit in several processes.
_OUTCOMES: tuple[Outcome, ...] = ("passed", "inconclusive", "not_compared", "failed")


def check_profiles(
    profiles: Sequence[Profile],
    baseline: Baseline | None,
    limits: Sequence[Limit],
    *,
    workload: str,
    strict: bool = False,
    missing: str | None = None,
) -> CheckResult:
    """The CheckResult of the Profiles of some processes, of which the last is shown. `missing` says
    why there is no baseline although one was named; `strict` fails what is inconclusive or due to
    an upgrade, and what could not be evaluated for another reason than a missing baseline."""
    profile = profiles[-1]
    problem = mismatch(profile, baseline.profile) if baseline else missing
    known = baseline.profile if baseline and problem is None else None
    decided = [_decide_all(limit, profiles, known, problem) for limit in limits]
    upgraded = upgrade(profile, known) if known else None
    if upgraded and not strict:
        decided = [_after_upgrade(d, upgraded) for d in decided]
    if baseline is None or not baseline.is_stored:
        decided = [replace(d, better=False) for d in decided]
    if strict:
        decided = [d if problem and d.relative else _strictly(d) for d in decided]
    outcome = _outcome_of_all(decided)
    changed = changes(profile, known, by_operator=upgraded is not None) if known else ()
    return CheckResult(
        workload=workload,
        target=profile.target,
        environment=profile.environment,
        mode=profile.mode,
        outcome=outcome,
        headline=headline(outcome, decided, changed, problem, upgraded),
        limits=tuple(decided),
        changes=changed,
        baseline=baseline.place if baseline else None,
        upgrade=upgraded,
        source=profile.step.source if profile.step else None,
        periodic=profile.between.periodic if profile.between else (),
        processes=len(profiles),
        warnings=warnings(profile, known) if known else (),
    )


def _after_upgrade(decided: LimitCheck, upgraded: str) -> LimitCheck:
    """The same check against a baseline of other versions, which fails no count."""
    if decided.outcome != "failed" or not decided.relative:
        return decided
    said = f"{decided.reason}; it fails with --strict, because {upgraded}"
    return replace(decided, outcome="inconclusive", reason=said)


def _strictly(decided: LimitCheck) -> LimitCheck:
    """The same check with --strict."""
    if decided.outcome not in ("inconclusive", "not_compared"):
        return decided
    unknown = "could not be evaluated: " if decided.outcome == "not_compared" else ""
    return replace(decided, outcome="failed", reason=f"{unknown}{decided.reason} (strict)")


def _outcome_of_all(decided: Sequence[LimitCheck]) -> Outcome:
    """Failures count first, then a baseline with which nothing could be compared."""
    outcomes = {d.outcome for d in decided}
    against_baseline = {d.outcome for d in decided if d.relative}
    if "failed" in outcomes:
        return "failed"
    if {"not_compared"} in (outcomes, against_baseline) or not outcomes:
        return "not_compared"
    return "inconclusive" if "inconclusive" in outcomes else "passed"


# ------------------------------------------------------------------------- one limit


def _decide_all(
    limit: Limit, profiles: Sequence[Profile], baseline: Profile | None, problem: str | None
) -> LimitCheck:
    """The best outcome; of equal ones, the last."""
    decided = (_decide(limit, profile, baseline, problem) for profile in reversed(profiles))
    return min(decided, key=lambda found: _OUTCOMES.index(found.outcome))


def _decide(
    limit: Limit, profile: Profile, baseline: Profile | None, problem: str | None
) -> LimitCheck:
    now = range_of(profile, limit.metric)
    before = None if baseline is None else range_of(baseline, limit.metric)
    found = LimitCheck(
        limit.metric,
        metrics.UNITS[limit.metric],
        limit.text,
        "not_compared",
        "",
        relative=limit.relative,
    )
    if before is not None:
        low, high = before.low, before.high
        found = replace(found, baseline=before.value, baseline_low=low, baseline_high=high)
    if now is None:
        why = ", because nothing ran on a GPU" if profile.mode == "rehearsal" else ""
        return replace(found, reason=f"{NOT_MEASURED}{why}")
    found = replace(found, value=now.value, low=now.low, high=now.high, exact=now.exact)
    if before is not None:
        found = replace(found, better=_is_better(limit, now, before))
    if not limit.relative:
        best = now.low if metrics.is_count(limit.metric) else now.value
        return _decided(found, now.value, limit.amount, best, limit.amount)
    if before is None or baseline is None:
        missing = "the baseline does not have it" if baseline else "no baseline"
        return replace(found, reason=problem or missing)
    found = replace(found, exact=now.exact and before.exact)
    bound = before.high + limit.allowance(before.high)
    if limit.metric == metrics.BLOCKERS:  # one that went hides none that came
        always, sometimes = new_blockers(profile, baseline)
        allowed = limit.allowance(before.value)
        outcome = _outcome(limit.metric, sometimes, allowed, always, allowed)
        found = replace(found, outcome=outcome, bound=bound)
        return replace(found, reason=reason(found, always))
    middle, expected = now.value, before.value + limit.allowance(before.value)
    if not found.exact:
        # The most frequent of a few counts says less than the range of them.
        middle, expected = (now.low + now.high) / 2, bound
    return _decided(found, middle, expected, now.low, bound)


def _decided(
    found: LimitCheck, middle: float, expected: float, best: float, bound: float
) -> LimitCheck:
    outcome = _outcome(found.metric, middle, expected, best, bound)
    found = replace(found, outcome=outcome, bound=bound)
    return replace(found, reason=reason(found))


def _outcome(metric: str, middle: float, expected: float, best: float, bound: float) -> Outcome:
    if not _is_worse(metric, middle, expected):
        return "passed"
    return "failed" if _is_worse(metric, best, bound) else "inconclusive"


def _is_worse(metric: str, value: float, bound: float) -> bool:
    margin = 1e-9 * max(1.0, abs(bound))
    return value < bound - margin if metrics.higher_is_better(metric) else value > bound + margin


def _is_better(limit: Limit, now: Range, before: Range) -> bool:
    """Whether a count is below the whole range of the baseline, by more than the limit allows in
    the other direction: no baseline is stale by chance."""
    if not metrics.is_count(limit.metric):
        return False
    least = limit.allowance(before.value) if limit.relative else 0.0
    return before.low - now.high > max(least, 1e-9)
