"""Weighs findings into one Verdict.

A measured replay outranks a prediction, a gain within the spread does not count, and what is
not known is `inconclusive`. A rehearsal has no times, so it never says that a graph pays.
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from launchscope.model import Profile, Recommendation, Verdict
from launchscope.rules.findings.wrong_result import codes_of
from launchscope.rules.profile_queries import (
    MAX_BUCKETS,
    REPLAYED,
    Gain,
    already_graphed,
    basis,
    busy_excess_pct,
    few_steps_timed,
    gain,
    incomplete_replays,
    never_pays_back,
    share_pct,
    wait_to_fix_first,
)
from launchscope.rules.rule import all_rules
from launchscope.rules.shape_change import distinct_inputs, every_step_differs
from launchscope.rules.verdict import headline
from launchscope.rules.verdict.instructions import instructions
from launchscope.rules.verdict.obstacles import obstacles

Confidence = Literal["high", "medium", "low"]
_ADOPTING = ("adopt", "adopt_after_fixes", "adopt_bucketed")
_USUAL_STEPS = 3
# What to do, the sentence that says it, and the codes of the rules behind it.
Decision = tuple[Recommendation, str, tuple[str, ...]]


def advise(profile: Profile) -> Profile:
    """The Profile with new findings and a new verdict in place of the ones that it had."""
    findings = tuple(found for rule in all_rules() for found in rule.check(profile))
    decide = _decide_structure if profile.mode == "rehearsal" else _decide
    recommendation, sentence, because = decide(profile)
    present = {finding.code for finding in findings}
    verdict = Verdict(
        recommendation=recommendation,
        basis=basis(profile),
        headline=sentence,
        speedup=_step_speedup(profile),
        iteration_speedup=profile.value("iteration_speedup"),
        removable_pct=profile.value("removable_pct"),
        confidence=_confidence(profile, recommendation),
        because=tuple(code for code in dict.fromkeys(because) if code in present),
        instructions=instructions(profile, recommendation),
    )
    return replace(profile, findings=findings, verdict=verdict)


def _decide(profile: Profile) -> Decision:
    # First, because it uses only counts: tracing also slows the kernels of a graph down.
    if already_graphed(profile) and not _lacks_a_step(profile):
        return "already_graphed", headline.graphed(profile), ("LS008", "LS010")
    found = gain(profile)
    if found is None:
        doubt = ("LS004",) if _is_incomplete(profile) else ()
        return "inconclusive", headline.no_gain_known(profile), (*doubt, "LS022", "LS030")
    wrong = _wrong(profile)  # the spread of a wrong replay's gain decides nothing
    if wrong and _would_pay_if_right(profile, found):
        return "unsafe", headline.unsafe(profile, found), (*wrong, "LS001")
    if found.is_open:
        return "inconclusive", headline.within_spread(profile, found), ("LS001", "LS004")
    if found.pays:
        return _decide_paying(profile, found)
    wait = wait_to_fix_first(profile)
    if wait is not None:
        sentence = headline.fix_first(profile, found, wait)
        return "stay_eager", sentence, ("LS020", "LS021", "LS001")
    codes = ("LS001", "LS002", "LS020", "LS021", "LS022", "LS004")
    return "stay_eager", headline.under_threshold(profile, found), codes


def _lacks_a_step(profile: Profile) -> bool:
    """Whether a share of the traced kernels is not that of a step."""
    reason = profile.facts.gain_unknown
    return reason is not None and reason.code in ("no_step", "whole_span", "graph_capture")


def _is_incomplete(profile: Profile) -> bool:
    """Whether measurements that are missing or contradict each other leave the gain unknown."""
    failed = profile.facts.has_pass_failures is True
    return failed or few_steps_timed(profile) or busy_excess_pct(profile) is not None


def _decide_paying(profile: Profile, found: Gain) -> Decision:
    """The gain is at least the threshold and beyond the spread."""
    late = never_pays_back(profile)
    if late is not None:
        return "stay_eager", headline.never_pays_back(found, *late), ("LS009", "LS001")
    fixes = list(obstacles(profile))
    codes = tuple(fix.code for fix in fixes)
    padding = any(fix.kind == "padding" for fix in fixes)
    measured = profile.replay.shapes or profile.replay.padded
    if padding and distinct_inputs(profile) > MAX_BUCKETS and not measured:
        return "stay_eager", headline.too_many_shapes(profile, found, fixes), ("LS010", *codes)
    status = profile.replay.status
    if status in ("blocked", "what_if") or (fixes and not (padding and len(fixes) == 1)):
        sentence = headline.after_fixes(profile, found, fixes)
        because = ("LS001", *codes, *(("LS030",) if status != "skipped" else ()))
        return "adopt_after_fixes", sentence, because
    if status == "failed":
        return "inconclusive", headline.failed(profile, found), ("LS030", "LS001")
    if padding:
        return "adopt_bucketed", headline.bucketed(profile, found), ("LS001", "LS010")
    codes = ("LS001", "LS002", "LS009", "LS004")
    return "adopt", headline.adopt(profile, found), codes


def _decide_structure(profile: Profile) -> Decision:
    """A rehearsal: what the structure alone allows to say."""
    codes = ("LS041", "LS010", "LS011", "LS030", "LS035")
    fixes = list(obstacles(profile))
    padding = any(fix.kind == "padding" for fix in fixes)
    if padding and distinct_inputs(profile) > MAX_BUCKETS:
        return "stay_eager", headline.structure_unstable(profile), codes
    sentence = (
        headline.structure_blocked(profile, fixes) if fixes else headline.structure_clear(profile)
    )
    return "inconclusive", sentence, codes


def _wrong(profile: Profile) -> tuple[str, ...]:
    """The rules that say why a captured step would not be the eager step, worst first."""
    replay, codes = profile.replay, []
    if replay.status in REPLAYED and replay.work.same is False:
        codes.append("LS033")
    if replay.status in REPLAYED and replay.correct.status == "different":
        codes += codes_of(replay.correct)
    # Other replays have further fixes, of which this is one.
    if profile.facts.scheduler_live and replay.status in ("measured", "skipped"):
        codes.append("LS035")
    return tuple(codes)


def _would_pay_if_right(profile: Profile, found: Gain) -> bool:
    """Whether a wrong replay is worth fixing: by its gain, or the predicted one of other work."""
    if found.pays:
        return True
    predicted = share_pct(profile, "predicted_replay_ms", "step_ms")
    other_work = profile.replay.work.same is False
    return other_work and predicted is not None and 100.0 - predicted >= profile.threshold_pct


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
