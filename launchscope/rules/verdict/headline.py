"""The one sentence of a verdict, with its numbers. Each function says one outcome."""

from __future__ import annotations

from math import ceil

from launchscope.model import Profile
from launchscope.reason_text import cause_text, reason_text
from launchscope.rules.findings.data import loader_needs
from launchscope.rules.findings.rehearsal import NOT_USED
from launchscope.rules.profile_queries import (
    PARTS,
    REPLAYED,
    Gain,
    effect,
    more_steps,
    runs_torch,
)
from launchscope.rules.shape_change import distinct_inputs, every_step_differs
from launchscope.rules.verdict.obstacles import Obstacle, clauses
from launchscope.wording import ms, pct, pct_beside, place, plural


def adopt(profile: Profile, found: Gain) -> str:
    does = effect(profile, found)
    if found.basis != "measured":
        return f"Adopt CUDA graphs if a capture works: a replay {does}. No replay was measured."
    part = PARTS.get(profile.replay.scope or "", "the step")
    return f"Adopt CUDA graphs: a replay of {part} {does}."


def after_fixes(profile: Profile, found: Gain, fixes: list[Obstacle]) -> str:
    what = clauses(fixes) or "the capture works"
    padded = any(fix.kind in ("padding", "growth") for fix in fixes)
    padding = _padding(profile) if padded else ""
    return f"Worth a CUDA graph once {what}: a replay {effect(profile, found)}{padding}."


def bucketed(profile: Profile, found: Gain) -> str:
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


def graphed(profile: Profile) -> str:
    share = profile.facts.graph_kernel_share_pct or 0.0
    launches = profile.value("graph_launches_per_step")
    count = f" ({plural(launches, 'graph launch')} per step)" if launches else ""
    return f"Already graphed: {pct(share)} of the kernels in a step run inside CUDA graphs{count}."


def under_threshold(profile: Profile, found: Gain) -> str:
    return f"Stay eager: a replay {effect(profile, found)}{_why_too_little(found)}."


def _why_too_little(found: Gain) -> str:
    if found.is_loss:
        return ""
    if found.beyond_spread:
        return f", below your threshold of {pct(found.threshold_pct)}"
    best = f" (at most {pct_beside(found.high_pct, found.threshold_pct)})"
    return f", which is within the spread of the timings{best if found.high_pct > 0 else ''}"


def fix_first(profile: Profile, found: Gain, wait: str) -> str:
    what = {
        "sync_wait_ms": "the synchronization first: it costs {}",
        "data_wait_ms": "the input pipeline first: the GPU waits for data for {}",
        "loader_ms": f"the input pipeline first: {loader_needs(profile)}",
    }[wait].format(ms(profile.value(wait) or 0.0))
    step = pct(found.step_removable_pct or 0.0)
    return (
        f"Fix {what}. A replay takes {step} off the step, but it {effect(profile, found)}"
        f"{_why_too_little(found)}."
    )


def never_pays_back(found: Gain, needed: float, expected: int) -> str:
    return (
        f"Stay eager: the capture pays back after {plural(ceil(needed), 'step')}, and you expect "
        f"{expected:,}."
    )


def too_many_shapes(profile: Profile, found: Gain, fixes: list[Obstacle]) -> str:
    return (
        f"Stay eager until {clauses(fixes)}: {distinct_inputs(profile)} different shapes "
        f"are too many for one graph each. With fixed shapes a replay {effect(profile, found)}."
    )


def failed(profile: Profile, found: Gain) -> str:
    reason = profile.replay.reason
    why = "" if reason is None else f": {reason_text(reason).rstrip('.')}"
    return (
        f"Inconclusive: a replay {effect(profile, found)}, but the capture failed{why}. Fix the "
        "capture and profile again to measure it."
    )


def unsafe(profile: Profile, found: Gain) -> str:
    replay, correct = profile.replay, profile.replay.correct
    captured = replay.status in REPLAYED
    what, whose = "a capture freezes the learning rate, which is set during training", ""
    if captured and replay.work.same is False:
        what, whose = (
            "the captured step runs different GPU work than the eager step",
            " of the eager work",
        )
    elif captured and correct.status == "different" and correct.causes:
        cause = correct.causes[0]
        what = cause_text(cause) + (f" ({place(cause.where)})" if cause.where else "")
    elif captured and correct.status == "different":
        largest = correct.max_update_diff
        by = f" by up to {pct(100 * largest)} of an update" if largest else ""
        what = f"the result of the replay differs from eager{by}"
    return f"Unsafe as it is: {what}. A replay{whose} {effect(profile, found)}."


def within_spread(profile: Profile, found: Gain) -> str:
    bounds = f"between {pct(found.low_pct)} and {pct(found.high_pct)} of the iteration"
    why = ""
    if found.rests_on_outside:
        between = "operators" if runs_torch(profile) else "launches"
        why = f", because a replay may or may not need what the host does between the {between}"
    elif found.rests_on_unsure:
        why = ", because a replay may or may not remove the longer gaps between launches"
    return f"Inconclusive: the gain is {bounds}{why}. {_deciding_action(profile)}"


def no_gain_known(profile: Profile) -> str:
    iteration, reason = profile.value("iteration_ms"), profile.facts.gain_unknown
    why = "neither a trace nor a replay shows how much of the iteration a CUDA graph removes"
    if iteration is None:
        why = "no iteration was timed"
    elif reason is not None:
        why = f"{reason_text(reason)}, so the gain of a CUDA graph is not known"
    return f"Inconclusive: {why}. {_deciding_action(profile)}"


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


def structure_unstable(profile: Profile) -> str:
    return (
        "One CUDA graph cannot serve this step as it is: the inspected steps have "
        f"{distinct_inputs(profile)} different input shapes. There are no times, because "
        f"{_why_no_times(profile)}."
    )


def structure_blocked(profile: Profile, fixes: list[Obstacle]) -> str:
    return (
        f"Not decided, because {_why_no_times(profile)}: whether a graph pays is not known. A "
        f"capture would fail or be wrong until {clauses(fixes)}."
    )


def structure_clear(profile: Profile) -> str:
    if profile.shapes.stable is None:
        return f"Not decided, because {_why_no_times(profile)}: the step was not inspected."
    ops = profile.value("device_ops_per_step")
    count = "" if ops is None else f" ({plural(ops, 'device operation')})"
    but = " Autocast was not checked." if profile.facts.amp_left_out else ""
    return (
        f"Not decided, because {_why_no_times(profile)}: the structure of the step{count} allows a "
        f"capture, and its shapes are stable.{but}"
    )


def _why_no_times(profile: Profile) -> str:
    unused = profile.facts.unused_gpu
    return "nothing ran on a GPU" if unused is None else NOT_USED[unused.obstacle]
