"""Weighs findings into one Verdict.

A measured replay outranks a prediction, a gain within the spread does not count, and what is
not known is `inconclusive`. A rehearsal has no times, so it never says that a graph pays.
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from launchscope.model import Profile, Recommendation, Verdict
from launchscope.rules.profile_queries import (
    basis,
    busy_excess_pct,
    few_steps_timed,
    gain,
    incomplete_replays,
)
from launchscope.rules.rule import all_rules
from launchscope.rules.shape_change import every_step_differs
from launchscope.rules.verdict.decision import decide
from launchscope.rules.verdict.instructions import instructions

Confidence = Literal["high", "medium", "low"]
_ADOPTING = ("adopt", "adopt_after_fixes", "adopt_bucketed")
_USUAL_STEPS = 3


def advise(profile: Profile) -> Profile:
    """The Profile with new findings and a new verdict in place of the ones that it had."""
    findings = tuple(found for rule in all_rules() for found in rule.check(profile))
    decision = decide(profile)
    present = {finding.code for finding in findings}
    verdict = Verdict(
        recommendation=decision.recommendation,
        basis=basis(profile),
        headline=decision.headline,
        speedup=_step_speedup(profile),
        iteration_speedup=profile.value("iteration_speedup"),
        removable_pct=profile.value("removable_pct"),
        confidence=_confidence(profile, decision.recommendation),
        because=tuple(code for code in dict.fromkeys(decision.because) if code in present),
        instructions=instructions(profile, decision.recommendation),
    )
    return replace(profile, findings=findings, verdict=verdict)


def _step_speedup(profile: Profile) -> float | None:
    """The speedup of the step: measured if there is a replay, otherwise predicted."""
    if basis(profile) != "predicted":  # a measured replay of different work does not count
        return profile.value("speedup")
    step, predicted = profile.value("step_ms"), profile.value("predicted_replay_ms")
    return step / predicted if step is not None and predicted else None


def _is_traced_once(profile: Profile) -> bool:
    """Whether a trace alone shows too few iterations to tell what is usual."""
    timed = profile.metrics.get("iteration_ms")
    return profile.mode == "trace" and timed is not None and len(timed.samples) < _USUAL_STEPS


def _confidence(profile: Profile, recommendation: Recommendation) -> Confidence:
    """High, less one level for each doubt."""
    if recommendation in ("already_graphed", "unsafe"):
        return "medium" if incomplete_replays(profile) else "high"
    found = gain(profile)
    if found is None or recommendation == "inconclusive":
        return "medium" if recommendation == "stay_eager" else "low"
    replay = profile.replay
    measured = found.basis == "measured" and bool(replay.shapes or replay.padded)
    if recommendation == "adopt_bucketed" and every_step_differs(profile) and not measured:
        return "low"
    unchecked = profile.replay.correct.status != "verified"
    doubts = [
        found.low_pct < found.threshold_pct <= found.high_pct,
        found.basis != "measured"
        or profile.iteration_source == "subtracted"
        or (recommendation in _ADOPTING and unchecked),
        few_steps_timed(profile),
        busy_excess_pct(profile) is not None,
        recommendation == "adopt_bucketed" and not measured,
        _is_traced_once(profile),
    ]
    levels: tuple[Confidence, ...] = ("high", "medium", "low")
    return levels[min(2, sum(doubts))]
