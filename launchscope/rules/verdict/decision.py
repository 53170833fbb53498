"""What to do about a step, in a word and in one sentence with its numbers."""

from __future__ import annotations

from math import ceil

from msgspec import Struct

from launchscope.model import Profile, Recommendation
from launchscope.reason_text import cause_text, reason_text
from launchscope.rules.findings.data import loader_needs
from launchscope.rules.findings.rehearsal import NOT_USED
from launchscope.rules.findings.wrong_result import codes_of
from launchscope.rules.profile_queries import (
    MAX_BUCKETS,
    PARTS,
    REPLAYED,
    Gain,
    already_graphed,
    busy_excess_pct,
    effect,
    few_steps_timed,
    gain,
    more_steps,
    never_pays_back,
    runs_torch,
    share_pct,
    wait_to_fix_first,
)
from launchscope.rules.shape_change import distinct_inputs, every_step_differs
from launchscope.rules.verdict.obstacles import Obstacle, clauses, obstacles
from launchscope.wording import ms, pct, pct_beside, place, plural


class Decision(Struct, frozen=True):
    """`because` are the codes of the rules behind it."""

    recommendation: Recommendation
    headline: str
    because: tuple[str, ...]


def decide(profile: Profile) -> Decision:
    if profile.mode == "rehearsal":
        return _by_structure(profile)
    # First, because it uses only counts: tracing also slows the kernels of a graph down.
    if already_graphed(profile) and not _lacks_a_step(profile):
        return _graphed(profile)
    found = gain(profile)
    if found is None:
        return _no_gain_known(profile)
    wrong = _wrong(profile)  # the spread of a wrong replay's gain decides nothing
    if wrong and _would_pay_if_right(profile, found):
        return _unsafe(profile, found, wrong)
    if found.is_open:
        return _open(profile, found)
    return _paying(profile, found) if found.pays else _under_threshold(profile, found)


def _graphed(profile: Profile) -> Decision:
    share = pct(profile.facts.graph_kernel_share_pct or 0.0)
    launches = profile.value("graph_launches_per_step")
    count = f" ({plural(launches, 'graph launch')} per step)" if launches else ""
    headline = f"Already graphed: {share} of the kernels in a step run inside CUDA graphs{count}."
    return Decision("already_graphed", headline, ("LS008", "LS010"))


def _lacks_a_step(profile: Profile) -> bool:
    """Whether a share of the traced kernels is not that of a step."""
    reason = profile.facts.gain_unknown
    return reason is not None and reason.code in ("no_step", "whole_span", "graph_capture")


def _no_gain_known(profile: Profile) -> Decision:
    iteration, reason = profile.value("iteration_ms"), profile.facts.gain_unknown
    why = "neither a trace nor a replay shows how much of the iteration a CUDA graph removes"
    if iteration is None:
        why = "no iteration was timed"
    elif reason is not None:
        why = f"{reason_text(reason)}, so the gain of a CUDA graph is not known"
    # Measurements that are missing or contradict each other can be the cause.
    failed = profile.facts.has_pass_failures is True
    incomplete = failed or few_steps_timed(profile) or busy_excess_pct(profile) is not None
    headline = f"Inconclusive: {why}. {_deciding_action(profile)}"
    return Decision("inconclusive", headline, (*["LS004"] * incomplete, "LS022", "LS030"))


def _open(profile: Profile, found: Gain) -> Decision:
    """The bounds leave the gain open."""
    bounds = f"between {pct(found.low_pct)} and {pct(found.high_pct)} of the iteration"
    why = ""
    if found.rests_on_outside:
        between = "operators" if runs_torch(profile) else "launches"
        why = f", because a replay may or may not need what the host does between the {between}"
    elif found.rests_on_unsure:
        why = ", because a replay may or may not remove the longer gaps between launches"
    headline = f"Inconclusive: the gain is {bounds}{why}. {_deciding_action(profile)}"
    return Decision("inconclusive", headline, ("LS001", "LS004"))


def _deciding_action(profile: Profile) -> str:
    """The one action that would decide an inconclusive verdict."""
    if profile.mode == "trace":
        how = "profile the script itself" if runs_torch(profile) else "time a replay"
        return f"A trace cannot decide this, so {how}."
    if profile.replay.status in REPLAYED and profile.value("removable_pct") is not None:
        quiet = "To decide it, profile again while nothing else runs on this machine"
        return f"{quiet}{more_steps(profile)}."
    fix = "fix what prevents the capture and profile again"
    if profile.replay.status == "skipped":
        fix = "run every pass"
    return f"A measured replay would decide it: {fix} (launchscope rules LS030)."


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


def _unsafe(profile: Profile, found: Gain, wrong: tuple[str, ...]) -> Decision:
    replay, correct = profile.replay, profile.replay.correct
    captured = replay.status in REPLAYED
    what, whose = "a capture freezes the learning rate, which is set during training", ""
    if captured and replay.work.same is False:
        what = "the captured step runs different GPU work than the eager step"
        whose = " of the eager work"
    elif captured and correct.status == "different" and correct.causes:
        cause = correct.causes[0]
        what = cause_text(cause) + (f" ({place(cause.where)})" if cause.where else "")
    elif captured and correct.status == "different":
        largest = correct.max_update_diff
        by = f" by up to {pct(100 * largest)} of an update" if largest else ""
        what = f"the result of the replay differs from eager{by}"
    headline = f"Unsafe as it is: {what}. A replay{whose} {effect(profile, found)}."
    return Decision("unsafe", headline, (*wrong, "LS001"))


def _under_threshold(profile: Profile, found: Gain) -> Decision:
    """The gain is less than the threshold."""
    replay, wait = f"{effect(profile, found)}{_why_too_little(found)}.", wait_to_fix_first(profile)
    if wait is None:
        codes = ("LS001", "LS002", "LS020", "LS021", "LS022", "LS004")
        return Decision("stay_eager", f"Stay eager: a replay {replay}", codes)
    what = {
        "sync_wait_ms": "the synchronization first: it costs {}",
        "data_wait_ms": "the input pipeline first: the GPU waits for data for {}",
        "loader_ms": f"the input pipeline first: {loader_needs(profile)}",
    }[wait].format(ms(profile.value(wait) or 0.0))
    step = pct(found.step_removable_pct or 0.0)
    headline = f"Fix {what}. A replay takes {step} off the step, but it {replay}"
    return Decision("stay_eager", headline, ("LS020", "LS021", "LS001"))


def _why_too_little(found: Gain) -> str:
    if found.is_loss:
        return ""
    if found.beyond_spread:
        return f", below your threshold of {pct(found.threshold_pct)}"
    best = f" (at most {pct_beside(found.high_pct, found.threshold_pct)})"
    return f", which is within the spread of the timings{best if found.high_pct > 0 else ''}"


def _paying(profile: Profile, found: Gain) -> Decision:
    """The gain is at least the threshold and beyond the spread."""
    late, does = never_pays_back(profile), effect(profile, found)
    if late is not None:
        headline = (
            f"Stay eager: the capture pays back after {plural(ceil(late[0]), 'step')}, and you "
            f"expect {late[1]:,}."
        )
        return Decision("stay_eager", headline, ("LS009", "LS001"))
    fixes, status = list(obstacles(profile)), profile.replay.status
    codes = tuple(fix.code for fix in fixes)
    padding = any(fix.kind == "padding" for fix in fixes)
    measured = profile.replay.shapes or profile.replay.padded
    if padding and distinct_inputs(profile) > MAX_BUCKETS and not measured:
        headline = (
            f"Stay eager until {clauses(fixes)}: {distinct_inputs(profile)} different shapes "
            f"are too many for one graph each. With fixed shapes a replay {does}."
        )
        return Decision("stay_eager", headline, ("LS010", *codes))
    if status in ("blocked", "what_if") or (fixes and not (padding and len(fixes) == 1)):
        because = ("LS001", *codes, *(("LS030",) if status != "skipped" else ()))
        return Decision("adopt_after_fixes", _after_fixes(profile, found, fixes), because)
    if status == "failed":
        reason = profile.replay.reason
        why = "" if reason is None else f": {reason_text(reason).rstrip('.')}"
        headline = (
            f"Inconclusive: a replay {does}, but the capture failed{why}. Fix the capture and "
            "profile again to measure it."
        )
        return Decision("inconclusive", headline, ("LS030", "LS001"))
    if padding:
        return Decision("adopt_bucketed", _bucketed(profile, found), ("LS001", "LS010"))
    part = PARTS.get(profile.replay.scope or "", "the step")
    headline = f"Adopt CUDA graphs: a replay of {part} {does}."
    if found.basis != "measured":
        headline = f"Adopt CUDA graphs if a capture works: a replay {does}. No replay was measured."
    return Decision("adopt", headline, ("LS001", "LS002", "LS009", "LS004"))


def _after_fixes(profile: Profile, found: Gain, fixes: list[Obstacle]) -> str:
    what = clauses(fixes) or "the capture works"
    padded = any(fix.kind in ("padding", "growth") for fix in fixes)
    padding = _padding(profile) if padded else ""
    return f"Worth a CUDA graph once {what}: a replay {effect(profile, found)}{padding}."


def _bucketed(profile: Profile, found: Gain) -> str:
    graphs = profile.replay.shapes or profile.replay.padded
    seen = f" ({plural(distinct_inputs(profile), 'shape')} seen)"
    if graphs:
        share = pct(sum(graph.share_pct for graph in graphs))
        seen = f" ({plural(len(graphs), 'shape')}, {share} of the steps)"
    elif every_step_differs(profile):
        seen = ""
    return (
        f"Adopt one CUDA graph per input shape{seen} and pad other inputs to a few shapes: a "
        f"replay {effect(profile, found)}{_padding(profile)}."
    )


def _padding(profile: Profile) -> str:
    padding = profile.replay.padding_pct
    if padding:
        return f", although {pct(padding)} of the padded inputs is padding"
    measured = profile.replay.shapes or profile.replay.padded
    return "" if measured else ", before the cost of padding"


def _by_structure(profile: Profile) -> Decision:
    """A rehearsal: what the structure alone allows to say."""
    codes, fixes = ("LS041", "LS010", "LS011", "LS030", "LS035"), list(obstacles(profile))
    unused, shapes = profile.facts.unused_gpu, distinct_inputs(profile)
    no_times = "nothing ran on a GPU" if unused is None else NOT_USED[unused.obstacle]
    if any(fix.kind == "padding" for fix in fixes) and shapes > MAX_BUCKETS:
        headline = (
            "One CUDA graph cannot serve this step as it is: the inspected steps have "
            f"{shapes} different input shapes. There are no times, because {no_times}."
        )
        return Decision("stay_eager", headline, codes)
    ops = profile.value("device_ops_per_step")
    count = "" if ops is None else f" ({plural(ops, 'device operation')})"
    but = " Autocast was not checked." if profile.facts.amp_left_out else ""
    known = f"the structure of the step{count} allows a capture, and its shapes are stable.{but}"
    if fixes:
        known = (
            "whether a graph pays is not known. A capture would fail or be wrong until "
            f"{clauses(fixes)}."
        )
    elif profile.shapes.stable is None:
        known = "the step was not inspected."
    return Decision("inconclusive", f"Not decided, because {no_times}: {known}", codes)
