"""Decides each limit. It fails only if the best of the fresh processes is worse than the worst of
the baseline's by more than it allows; a worse median with overlapping ranges is inconclusive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from launchscope.gate import metrics
from launchscope.gate.baseline import Baseline
from launchscope.gate.changes import changes, new_blockers
from launchscope.gate.comparability import mismatch, warnings
from launchscope.gate.limits import Limit
from launchscope.gate.measurement import (
    Range,
    added,
    explained,
    noise_of,
    observed_alike,
    range_of,
    usual_share,
)
from launchscope.gate.wording import (
    headline,
    reason_added,
    reason_against_baseline,
    reason_against_limit,
    reason_by_chance,
    reason_within_noise,
)
from launchscope.model import CheckResult, LimitCheck, Outcome, Profile, TimedFigure

# Shown beside the baseline's where no limit is on them.
_TIMINGS = ("iteration_ms", "step_ms", "host_ms", "gpu_busy_ms", "launch_overhead_pct")


def check_profile(
    profile: Profile,
    baseline: Baseline | None,
    limits: Sequence[Limit],
    *,
    workload: str,
    strict: bool = False,
    missing: str | None = None,
) -> CheckResult:
    """The CheckResult of a Profile. `missing` says why there is no baseline although one was named;
    `strict` fails what is inconclusive, and what could not be evaluated for another reason than a
    baseline that is missing or of another machine."""
    found = mismatch(profile, baseline.profile) if baseline else None
    known = baseline.profile if baseline and found is None else None
    problem = found.text if found else missing
    decided = [_decide(limit, profile, known, problem) for limit in limits]
    if strict:
        decided = [d if problem and d.relative else strictly(d) for d in decided]
    outcome = outcome_of(decided)
    return CheckResult(
        workload=workload,
        target=profile.target,
        environment=profile.environment,
        mode=profile.mode,
        outcome=outcome,
        headline=headline(outcome, decided, problem),
        limits=tuple(decided),
        changes=changes(profile, known) if known else (),
        timings=_timings(profile, known, decided) if known else (),
        baseline=baseline.place if baseline else None,
        baseline_environment=baseline.profile.environment if baseline else None,
        renewable=found is None or found.renewable,
        source=profile.step.source if profile.step else None,
        periodic=profile.between.periodic if profile.between else (),
        processes=profile.facts.processes or 1,
        warnings=warnings(profile, known) if known else (),
    )


def strictly(decided: LimitCheck) -> LimitCheck:
    """The same check with --strict."""
    if decided.outcome not in ("inconclusive", "not_compared"):
        return decided
    unknown = "could not be evaluated: " if decided.outcome == "not_compared" else ""
    return replace(decided, outcome="failed", reason=f"{unknown}{decided.reason} (strict)")


def confirmed(first: CheckResult, second: CheckResult, *, strict: bool = False) -> CheckResult:
    """The second measurement of a check that failed: a limit that failed once is inconclusive, one
    that the second measurement could not compare keeps its first outcome."""
    failed = {limit.metric: limit for limit in first.limits if limit.outcome == "failed"}
    decided = []
    for limit in second.limits:
        before = failed.get(limit.metric)
        if before is not None and limit.outcome == "not_compared":
            reason = f"{before.reason}; the second measurement: {limit.reason}"
            limit = replace(before, reason=reason)
        elif (before is not None) != (limit.outcome == "failed"):
            other = "the first measurement failed" if before else "the first measurement passed"
            limit = replace(limit, outcome="inconclusive", reason=f"{limit.reason}; {other}")
            limit = strictly(limit) if strict else limit
        decided.append(limit)
    outcome = outcome_of(decided)
    return replace(
        second, limits=tuple(decided), outcome=outcome, headline=headline(outcome, decided, None)
    )


def outcome_of(decided: Sequence[LimitCheck]) -> Outcome:
    """Failures count first, then a baseline with which nothing could be compared."""
    outcomes = {d.outcome for d in decided}
    against_baseline = {d.outcome for d in decided if d.relative}
    if "failed" in outcomes:
        return "failed"
    if {"not_compared"} in (outcomes, against_baseline) or not outcomes:
        return "not_compared"
    return "inconclusive" if "inconclusive" in outcomes else "passed"


# ------------------------------------------------------------------------- one limit


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
        limit.source,
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
    noise = noise_of(profile, name) if metrics.is_timed(name) else None
    found = replace(
        found, value=now.value, low=now.low, high=now.high, exact=now.exact, noise=noise
    )
    if limit.relative and (before is None or baseline is None):
        missing = "the baseline does not have it" if baseline else "no baseline"
        return replace(found, reason=problem or missing)
    if limit.relative and baseline is not None and not observed_alike(name, profile, baseline):
        return replace(found, reason="the baseline was made with another --inspect or --trace")
    other_source = baseline is not None and profile.iteration_source != baseline.iteration_source
    if limit.relative and other_source and name in metrics.UNDER_REPLAY:
        why = "the baseline's iteration with a replay is known in another way"
        return replace(found, reason=why)
    if before is not None and baseline is not None:
        fewer = explained(name, baseline, profile)
        least = replace(now, high=now.high + fewer)
        found = replace(found, better=_better(limit, least, before))
    if before is None or baseline is None or not limit.relative:
        outcome = _outcome_of(name, now, limit.amount, now.value, limit.amount)
        found = replace(found, outcome=outcome, bound=limit.amount)
        return replace(found, reason=reason_against_limit(found))
    more = new_blockers(profile, baseline) if name == metrics.BLOCKERS else None
    outcome, bound = _against_baseline(limit, now, before, more)
    found = replace(found, outcome=outcome, bound=bound, exact=now.exact and before.exact)
    chance = outcome == "failed" and _may_be_chance(limit, now, before, profile, baseline)
    if more is None and (outcome != "failed" or chance):
        always = added(name, profile, baseline, before.low)
        if round(always, 9) > limit.allowance(before.value):
            return replace(found, outcome="failed", reason=reason_added(found, always))
    if chance or (more is not None and outcome == "inconclusive"):
        found = replace(found, outcome="inconclusive")
        return replace(found, reason=reason_by_chance(found))
    # The baseline was measured at another time: what is within the noise proves nothing.
    lost = metrics.is_timed(name) and (noise is None or noise > limit.allowance(before.value))
    if lost and outcome == "failed":
        found = replace(found, outcome="inconclusive")
        return replace(found, reason=reason_within_noise(found))
    return replace(found, reason=reason_against_baseline(found, more and more[0]))


def _may_be_chance(
    limit: Limit, now: Range, before: Range, profile: Profile, baseline: Profile
) -> bool:
    """Whether a count that is beyond its limit may be so in unchanged code, by what each inspected
    iteration did."""
    name = limit.metric
    if name == "shape_signatures":
        # Other shapes now and then, or all the time: a few steps see more or fewer of them.
        steps = sum(shape.steps for shape in profile.shapes.signatures)
        return before.value > 1 or steps == 2 or usual_share(profile.shapes) > 0.5
    more = explained(name, profile, baseline)
    reached = before.low + more
    return more > 0 and not _worse(name, now.low, reached + limit.allowance(reached))


def _timings(
    profile: Profile, baseline: Profile, decided: Sequence[LimitCheck]
) -> tuple[TimedFigure, ...]:
    """Times without a limit."""
    figures = []
    for name in _TIMINGS:
        value, before = profile.value(name), baseline.value(name)
        if value is not None and before is not None and name not in {d.metric for d in decided}:
            noise = noise_of(profile, name)
            figures.append(TimedFigure(name, metrics.UNITS[name], before, value, noise))
    return tuple(figures)


def _against_baseline(
    limit: Limit, now: Range, before: Range, new_blockers: tuple[int, int] | None
) -> tuple[Outcome, float]:
    """The outcome, and the worst value that passes."""
    name = limit.metric
    sign = -1.0 if metrics.higher_is_better(name) else 1.0
    worst = before.worst(name)
    bound = worst + sign * limit.allowance(worst)
    allowed = limit.allowance(before.value)
    if new_blockers is not None:
        # A blocker that went must not hide one that came. One that only some processes met may
        # be chance.
        always, sometimes = new_blockers
        if always > allowed:
            return "failed", bound
        return ("inconclusive" if sometimes > allowed else "passed"), bound
    middle, expected = now.value, before.value + sign * allowed
    if metrics.is_count(name) and not (now.exact and before.exact):
        # The most frequent of a few counts says less than the range of them.
        middle, expected = (now.low + now.high) / 2.0, bound
    outcome = _outcome_of(name, now, bound, middle, expected)
    return outcome, bound


def _outcome_of(metric: str, now: Range, bound: float, middle: float, expected: float) -> Outcome:
    """Failed if the best value is beyond the bound, inconclusive if only the middle one is beyond
    what is expected."""
    if _worse(metric, now.best(metric), bound):
        return "failed"
    return "inconclusive" if _worse(metric, middle, expected) else "passed"


def _worse(metric: str, value: float, bound: float) -> bool:
    margin = 1e-9 * max(1.0, abs(bound))
    return value < bound - margin if metrics.higher_is_better(metric) else value > bound + margin


def _better(limit: Limit, now: Range, before: Range) -> bool:
    """Whether the worst of now is better than the best of the baseline, by more than the limit
    allows in the other direction: no baseline is stale by chance."""
    if limit.metric == "shape_signatures" and now.high > 1:
        return False  # how many shapes a few steps see is chance
    gain = before.best(limit.metric) - now.worst(limit.metric)
    if metrics.higher_is_better(limit.metric):
        gain = -gain
    least = limit.allowance(before.value) if limit.relative else metrics.floor_of(limit.metric)
    return gain > max(least, 1e-9)
