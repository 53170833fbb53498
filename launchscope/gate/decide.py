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
from launchscope.gate.wording import (
    headline,
    reason_against_baseline,
    reason_against_limit,
)
from launchscope.model import CheckResult, LimitCheck, Outcome, Profile

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
    an upgrade, and what could not be evaluated for another reason than a baseline that is missing
    or of another machine."""
    profile = profiles[-1]
    found = mismatch(profile, baseline.profile) if baseline else None
    known = baseline.profile if baseline and found is None else None
    problem = found.text if found else missing
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
        renewable=found is None or found.renewable,
        source=profile.step.source if profile.step else None,
        periodic=profile.between.periodic if profile.between else (),
        processes=len(profiles),
        warnings=warnings(profile, known) if known else (),
    )


def _after_upgrade(decided: LimitCheck, upgraded: str) -> LimitCheck:
    """The same check against a baseline of other versions, which fails no count."""
    if decided.outcome != "failed" or not decided.relative:
        return decided
    reason = f"{decided.reason}; it fails with --strict, because {upgraded}"
    return replace(decided, outcome="inconclusive", reason=reason)


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
    name = limit.metric
    now = range_of(profile, name)
    before = range_of(baseline, name) if baseline else None
    found = LimitCheck(
        name,
        metrics.UNITS[name],
        limit.text,
        "not_compared",
        "",
        relative=limit.relative,
        baseline=before.value if before else None,
        baseline_low=before.low if before else None,
        baseline_high=before.high if before else None,
    )
    if now is None:
        why = ", because nothing ran on a GPU" if profile.mode == "rehearsal" else ""
        return replace(found, reason=f"not measured{why}")
    found = replace(found, value=now.value, low=now.low, high=now.high, exact=now.exact)
    if before is not None:
        found = replace(found, better=_is_better(limit, now, before))
    if not limit.relative:
        return _against_limit(found, now, limit)
    if before is None or baseline is None:
        missing = "the baseline does not have it" if baseline else "no baseline"
        return replace(found, reason=problem or missing)
    found = replace(found, exact=now.exact and before.exact)
    if name == metrics.BLOCKERS:
        return _against_blockers(found, before, limit, new_blockers(profile, baseline))
    return _against_baseline(found, now, before, limit)


def _against_limit(found: LimitCheck, now: Range, limit: Limit) -> LimitCheck:
    """Held against an absolute limit."""
    best = now.low if metrics.is_count(limit.metric) else now.value
    outcome: Outcome = "passed"
    if _is_worse(limit.metric, now.value, limit.amount):
        outcome = "failed" if _is_worse(limit.metric, best, limit.amount) else "inconclusive"
    found = replace(found, outcome=outcome, bound=limit.amount)
    return replace(found, reason=reason_against_limit(found))


def _against_baseline(found: LimitCheck, now: Range, before: Range, limit: Limit) -> LimitCheck:
    bound = before.high + limit.allowance(before.high)
    middle, expected = now.value, before.value + limit.allowance(before.value)
    if not found.exact:
        # The most frequent of a few counts says less than the range of them.
        middle, expected = (now.low + now.high) / 2, bound
    outcome: Outcome = "passed"
    if _is_worse(limit.metric, middle, expected):
        outcome = "failed" if _is_worse(limit.metric, now.low, bound) else "inconclusive"
    found = replace(found, outcome=outcome, bound=bound)
    return replace(found, reason=reason_against_baseline(found))


def _against_blockers(
    found: LimitCheck, before: Range, limit: Limit, new: tuple[int, int]
) -> LimitCheck:
    """A blocker that went hides none that came."""
    always, sometimes = new
    allowed = limit.allowance(before.value)
    outcome: Outcome = "failed" if always > allowed else "passed"
    if always <= allowed < sometimes:
        outcome = "inconclusive"
    found = replace(found, outcome=outcome, bound=before.high + limit.allowance(before.high))
    return replace(found, reason=reason_against_baseline(found, always))


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
