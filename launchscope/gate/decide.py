"""Decides each limit, and from all of them the Check.

A value fails only if the best of its fresh processes is worse than the worst of the baseline's
by more than the limit allows. A worse median with overlapping ranges is inconclusive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

from launchscope.gate import metrics
from launchscope.gate.baseline import Baseline
from launchscope.gate.changes import changes, new_blockers
from launchscope.gate.limits import Limit
from launchscope.gate.measurement import Range, processes_of, range_of
from launchscope.gate.wording import headline, reason_against_baseline, reason_against_limit
from launchscope.model import Check, LimitCheck, Outcome, Profile, Target


def check_profile(
    profile: Profile,
    baseline: Baseline | None,
    limits: Sequence[Limit],
    *,
    workload: str,
    strict: bool = False,
    missing: str | None = None,
) -> Check:
    """The Check of a Profile, of one process or merged from several.

    `missing` says why there is no baseline although one was named. `strict` turns inconclusive
    limits into failed ones.
    """
    apart = not_comparable(profile, baseline.profile) if baseline is not None else None
    known = baseline.profile if baseline is not None and apart is None else None
    decided = [_decide(limit, profile, known, apart or missing) for limit in limits]
    if strict:
        decided = list(map(_strictly, decided))
    found = changes(profile, known) if known is not None else ()
    outcome = _outcome(decided)
    return Check(
        workload=workload,
        target=profile.target,
        environment=profile.environment,
        mode=profile.mode,
        outcome=outcome,
        headline=headline(outcome, decided, apart or missing),
        limits=tuple(decided),
        changes=found,
        baseline=baseline.place if baseline is not None else None,
        baseline_environment=baseline.profile.environment if baseline is not None else None,
        source=profile.step.source if profile.step is not None else None,
        processes=processes_of(profile),
        warnings=_warnings(profile, known) if known is not None else (),
    )


def _strictly(decided: LimitCheck) -> LimitCheck:
    if decided.outcome != "inconclusive":
        return decided
    return replace(decided, outcome="failed", reason=f"{decided.reason} (strict)")


def confirmed(first: Check, second: Check, *, strict: bool = False) -> Check:
    """The second measurement of a Check that failed: a limit that failed once is inconclusive.

    A limit that the second measurement could not compare keeps its first outcome.
    """
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
            limit = _strictly(limit) if strict else limit
        decided.append(limit)
    outcome = _outcome(decided)
    return replace(
        second, limits=tuple(decided), outcome=outcome, headline=headline(outcome, decided, None)
    )


def _outcome(decided: Sequence[LimitCheck]) -> Outcome:
    """Failures count first, then limits of the command line that could not be compared."""
    outcomes = {d.outcome for d in decided}
    if "failed" in outcomes:
        return "failed"
    flag = any(d.outcome == "not_compared" and d.source == "flag" for d in decided)
    if flag or not outcomes - {"not_compared"}:
        return "not_compared"
    return "inconclusive" if "inconclusive" in outcomes else "passed"


# ------------------------------------------------------------------------- one limit


def _decide(
    limit: Limit, profile: Profile, baseline: Profile | None, problem: str | None
) -> LimitCheck:
    now = range_of(profile, limit.metric)
    before = range_of(baseline, limit.metric) if baseline is not None else None
    undecided = LimitCheck(
        limit.metric,
        metrics.UNITS[limit.metric],
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
        return replace(undecided, reason=f"not measured{why}")
    measured = replace(undecided, value=now.value, low=now.low, high=now.high, exact=now.exact)
    if not limit.relative:
        return _against_limit(limit, measured, now, before)
    if before is None or baseline is None:
        missing = "the baseline does not have it" if baseline is not None else "no baseline"
        return replace(measured, reason=problem or missing)
    more = new_blockers(profile, baseline) if limit.metric == metrics.BLOCKERS else None
    return _against_baseline(limit, measured, now, before, more)


def _against_limit(
    limit: Limit, measured: LimitCheck, now: Range, before: Range | None
) -> LimitCheck:
    bound = limit.amount
    outcome: Outcome = "passed"
    if _worse(limit.metric, now.best(limit.metric), bound):
        outcome = "failed"
    elif _worse(limit.metric, now.value, bound):
        outcome = "inconclusive"
    result = replace(measured, outcome=outcome, bound=bound,
                     better=before is not None and _better(limit, now, before))  # fmt: skip
    return replace(result, reason=reason_against_limit(result))


def _against_baseline(
    limit: Limit,
    measured: LimitCheck,
    now: Range,
    before: Range,
    new_blockers: tuple[int, int] | None,
) -> LimitCheck:
    name = limit.metric
    sign = -1.0 if metrics.higher_is_better(name) else 1.0
    worst = before.worst(name)
    bound = worst + sign * limit.allowance(worst)
    middle, expected = now.value, before.value + sign * limit.allowance(before.value)
    if metrics.is_count(name) and not (now.exact and before.exact):
        # The most frequent of a few counts says less than the range of them.
        middle, expected = (now.low + now.high) / 2.0, bound
    outcome: Outcome = "passed"
    if new_blockers is not None:
        # A blocker that went must not hide one that came. One that only some processes met may
        # be chance.
        always, sometimes = new_blockers
        if always > limit.allowance(before.value):
            outcome = "failed"
        elif sometimes > limit.allowance(before.value):
            outcome = "inconclusive"
    elif _worse(name, now.best(name), bound):
        outcome = "failed"
    elif _worse(name, middle, expected):
        outcome = "inconclusive"
    if name == "shape_signatures" and outcome == "failed" and before.value > 1:
        # How many shapes a few steps see is chance if they change all the time.
        outcome = "inconclusive"
    result = replace(
        measured, outcome=outcome, bound=bound, better=_better(limit, now, before),
        exact=now.exact and before.exact,
    )  # fmt: skip
    return replace(result, reason=reason_against_baseline(result, new_blockers and new_blockers[0]))


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


# ------------------------------------------------------------------------ comparability


def not_comparable(profile: Profile, baseline: Profile) -> str | None:
    """Why these two cannot be compared; None if they can."""
    now, before = profile.environment, baseline.environment
    if (profile.mode == "rehearsal") != (baseline.mode == "rehearsal"):
        with_gpu = "the baseline was measured on a GPU, and this run used none"
        without = "the baseline was made without a GPU, and this run used one"
        return with_gpu if profile.mode == "rehearsal" else without
    if profile.mode != "rehearsal" and now.device != before.device:
        return f"the baseline was measured on {before.device}, this run on {now.device}"
    if now.world_size != before.world_size:
        ranks = "1 rank" if before.world_size == 1 else f"{before.world_size} ranks"
        return f"the baseline has {ranks}, this run {now.world_size}"
    return None


def _another_target(now: Target, before: Target) -> bool:
    """Whether the two name different code, from whatever folder. Every trace has its own name."""
    if now.kind != before.kind or now.kind == "trace":
        return False
    names = [PurePath(target.name).parts for target in (now, before)]
    shared = min(map(len, names))
    return names[0][-shared:] != names[1][-shared:]


def _warnings(profile: Profile, baseline: Profile) -> tuple[str, ...]:
    """Differences that may explain others; the figures are compared anyway."""
    now, before = profile.environment, baseline.environment
    warnings = [
        f"the baseline was made with {name} {old}, this run with {new}"
        for name, old, new in (
            ("PyTorch", before.torch, now.torch),
            ("CUDA", before.cuda, now.cuda),
            ("driver", before.driver, now.driver),
        )
        if old != new
    ]
    if _another_target(profile.target, baseline.target):
        warnings.append(f"the baseline was made of a different target: {baseline.target.name}")
    if profile.target.args != baseline.target.args:
        args = " ".join(baseline.target.args) or "none"
        warnings.append(f"the baseline was made with different arguments: {args}")
    periods = [tuple(p.step.period) if p.step is not None else () for p in (profile, baseline)]
    if periods[0] != periods[1]:
        warnings.append(f"the baseline has a different step: {' > '.join(periods[1])}")
    return tuple(warnings)
