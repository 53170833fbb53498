"""Weighs findings into one Verdict.

A measured replay outranks a prediction, a gain within the spread does not count, and what is
not known is `inconclusive`. A rehearsal has no times, so it never says that a graph pays: its
verdict is `inconclusive`, or `stay_eager` for a step with too many shapes for one graph each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from launchscope.model import Finding, Profile, Recommendation, Verdict
from launchscope.rules.findings.ls035_live_scheduler import scheduler_is_frozen
from launchscope.rules.findings.ls040_partial_run import is_partial
from launchscope.rules.loader import all_rules
from launchscope.rules.profile_queries import (
    MAX_BUCKETS,
    Gain,
    already_graphed,
    basis,
    busy_excess_pct,
    gain,
    never_pays_back,
    share_pct,
    wait_to_fix_first,
)
from launchscope.rules.shape_change import distinct_inputs, every_step_differs
from launchscope.rules.verdict import headline
from launchscope.rules.verdict.instructions import instructions
from launchscope.rules.verdict.obstacles import obstacles

Confidence = Literal["high", "medium", "low"]


@dataclass(frozen=True)
class Decision:
    """What to do, the sentence that says it, and the codes of the rules behind it."""

    recommendation: Recommendation
    headline: str
    because: tuple[str, ...] = ()


def advise(profile: Profile) -> Profile:
    """The Profile with new findings and a new verdict in place of the ones that it had."""
    findings = tuple(found for rule in all_rules() for found in rule.check(profile))
    return replace(profile, findings=findings, verdict=_verdict(profile, findings))


def _verdict(profile: Profile, findings: tuple[Finding, ...]) -> Verdict:
    decision = _decide_structure(profile) if profile.mode == "rehearsal" else _decide(profile)
    present = {finding.code for finding in findings}
    found = gain(profile)
    return Verdict(
        recommendation=decision.recommendation,
        basis=basis(profile),
        headline=decision.headline,
        speedup=_step_speedup(profile),
        iteration_speedup=profile.value("iteration_speedup"),
        removable_pct=None if found is None else found.removable_pct,
        confidence=_confidence(profile, decision.recommendation),
        because=tuple(code for code in dict.fromkeys(decision.because) if code in present),
        instructions=instructions(profile, decision.recommendation),
    )


def _decide(profile: Profile) -> Decision:
    # First, because it uses only counts: tracing also slows the kernels of a graph down.
    if already_graphed(profile):
        return Decision("already_graphed", headline.graphed(profile), ("LS008",))
    excess = busy_excess_pct(profile)
    if excess is not None and not profile.facts.projected_from_bursts:
        return Decision("inconclusive", headline.contradiction(excess), ("LS006",))
    found = gain(profile)
    if found is None:
        return Decision("inconclusive", headline.no_gain_known(profile), ("LS040", "LS031"))
    wrong = _wrong(profile)  # the spread of a wrong replay's gain decides nothing
    if wrong and _would_pay_if_right(profile, found):
        return Decision("unsafe", headline.unsafe(profile, found, wrong[0]), (*wrong, "LS001"))
    if found.within_spread_of(profile.threshold_pct):
        return Decision(
            "inconclusive", headline.within_spread(profile, found), ("LS005", "LS044", "LS004")
        )
    if found.removable_pct < profile.threshold_pct:
        return _decide_small(profile, found)
    return _decide_paying(profile, found)


def _decide_small(profile: Profile, found: Gain) -> Decision:
    """The gain is under the threshold."""
    if wait_to_fix_first(profile) is not None:
        sentence = headline.fix_first(profile, found)
        return Decision("stay_eager", sentence, ("LS020", "LS021", "LS001"))
    codes = ("LS001", "LS005", "LS002", "LS007", "LS020", "LS021")
    return Decision("stay_eager", headline.under_threshold(profile, found), codes)


def _decide_paying(profile: Profile, found: Gain) -> Decision:
    """The gain is at least the threshold and beyond the spread."""
    late = never_pays_back(profile)
    if late is not None:
        return Decision("stay_eager", headline.never_pays_back(found, *late), ("LS009", "LS001"))
    fixes = obstacles(profile)
    codes = tuple(fix.code for fix in fixes)
    padding = any(fix.kind == "padding" for fix in fixes)
    if padding and distinct_inputs(profile) > MAX_BUCKETS:
        sentence = headline.too_many_shapes(profile, found, fixes)
        return Decision("stay_eager", sentence, ("LS010", *codes))
    status = profile.replay.status
    if status in ("blocked", "what_if") or (fixes and not (padding and len(fixes) == 1)):
        sentence = headline.after_fixes(profile, found, fixes)
        because = ("LS001", *codes, *(("LS031",) if status != "skipped" else ()))
        return Decision("adopt_after_fixes", sentence, because)
    if status == "failed":
        return Decision("inconclusive", headline.failed(profile, found), ("LS031", "LS001"))
    if padding:
        sentence = headline.bucketed(profile, found)
        return Decision("adopt_bucketed", sentence, ("LS001", "LS010"))
    codes = ("LS001", "LS003", "LS002", "LS036", "LS034")
    return Decision("adopt", headline.adopt(profile, found), codes)


def _decide_structure(profile: Profile) -> Decision:
    """A rehearsal: what the structure alone allows to say."""
    codes = ("LS041", "LS010", "LS011", "LS030", "LS035", "LS043")
    fixes = obstacles(profile)
    padding = any(fix.kind == "padding" for fix in fixes)
    if padding and distinct_inputs(profile) > MAX_BUCKETS:
        return Decision("stay_eager", headline.structure_unstable(profile), codes)
    if [fix.code for fix in fixes] == ["LS010"]:
        return Decision("inconclusive", headline.structure_shapes(profile), codes)
    if fixes:
        return Decision("inconclusive", headline.structure_blocked(profile, fixes), codes)
    return Decision("inconclusive", headline.structure_clear(profile), codes)


def _wrong(profile: Profile) -> tuple[str, ...]:
    """Why a captured step would not be the eager step, worst first."""
    captured = profile.replay.status in ("measured", "what_if")
    reasons = []
    if captured and profile.replay.work.same is False:
        reasons.append("LS032")
    if captured and profile.replay.correct.status == "different":
        reasons.append("LS033")
    if scheduler_is_frozen(profile) and profile.replay.status == "measured":
        reasons.append("LS035")
    return tuple(reasons)


def _would_pay_if_right(profile: Profile, found: Gain) -> bool:
    """Whether a wrong replay is worth fixing: by its own gain, or by the predicted one.

    A replay of different work does not show the gain, so the prediction counts there.
    """
    if found.high_pct >= profile.threshold_pct:
        return True
    predicted = share_pct(profile, "predicted_replay_ms", "step_ms")
    other_work = profile.replay.work.same is False
    return other_work and predicted is not None and 100.0 - predicted >= profile.threshold_pct


def _step_speedup(profile: Profile) -> float | None:
    """Of the step: measured if there is a replay, from the prediction otherwise."""
    if basis(profile) != "predicted":  # a measured replay of different work does not count
        return profile.value("speedup")
    step, predicted = profile.value("step_ms"), profile.value("predicted_replay_ms")
    return step / predicted if step is not None and predicted else None


def _confidence(profile: Profile, recommendation: Recommendation) -> Confidence:
    """How reliable the recommendation is.

    High: measured, checked, and the bounds of the gain are on one side of the threshold. Each
    doubt takes one level off: bounds on both sides, a prediction, an unchecked replay to adopt,
    few steps, an iteration projected without a trace, a trace in which no step was found.
    """
    if recommendation in ("already_graphed", "unsafe"):
        return "high"
    found = gain(profile)
    if found is None or recommendation == "inconclusive":
        return "medium" if recommendation == "stay_eager" else "low"
    if recommendation == "adopt_bucketed" and every_step_differs(profile):
        return "low"
    threshold = profile.threshold_pct
    clear = found.low_pct >= threshold or found.high_pct < threshold
    unchecked = profile.replay.correct.status != "verified"
    doubts = [
        not clear,
        found.basis != "measured",
        found.basis == "measured" and recommendation.startswith("adopt") and unchecked,
        is_partial(profile),
        profile.facts.projected_from_bursts is True,
        recommendation == "adopt_bucketed",
        profile.step is not None and profile.step.boundary == "none",
    ]
    levels: tuple[Confidence, ...] = ("high", "medium", "low")
    return levels[min(2, sum(doubts))]
