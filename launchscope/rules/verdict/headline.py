"""The one sentence of a verdict, with its numbers. Each function says one outcome."""

from __future__ import annotations

from math import ceil

from launchscope.model import Profile
from launchscope.reason_text import cause_text, reason_text
from launchscope.rules.findings.data import loader_needs
from launchscope.rules.findings.rehearsal import NOT_USED
from launchscope.rules.profile_queries import PARTS, REPLAYED, Gain, more_steps, runs_torch
from launchscope.rules.shape_change import (
    distinct_inputs,
    every_step_differs,
    longest_replayed,
)
from launchscope.rules.verdict.obstacles import Obstacle, ObstacleKind, clauses
from launchscope.wording import first_shapes, ms, pct, pct_beside, place, plural, share_of, times

# Of a capture in spite of the only obstacle.
_EFFECTS: dict[ObstacleKind, str] = {
    "blockers": "fail",
    "legacy": "fail",
    "forward": "be wrong",
    "frozen": "keep its first values",
    **dict.fromkeys(("growth", "padding"), "serve one shape only"),
    **dict.fromkeys(("lbfgs", "calls", "branch"), "replay the wrong path"),
}
_BEFORE_PADDING = ", before the cost of padding"


def adopt(profile: Profile, found: Gain) -> str:
    if found.basis == "measured":
        part = PARTS.get(profile.replay.scope or "", "the step")
        return f"Adopt CUDA graphs: a replay of {part} {_effect(profile, found)}."
    return (
        f"Adopt CUDA graphs if a capture works: a replay {_effect(profile, found)}. No replay was "
        "measured."
    )


def after_fixes(profile: Profile, found: Gain, fixes: list[Obstacle]) -> str:
    what = clauses(fixes) or "the capture works"
    padded = any(fix.kind in ("padding", "growth") for fix in fixes) and not profile.replay.padded
    longest = longest_replayed(profile) if found.is_measured else None
    at = "" if longest is None else f"at the longest length seen ({longest:,}) "
    return (
        f"Worth a CUDA graph once {what}: a replay {at}{_effect(profile, found)}"
        f"{_BEFORE_PADDING if padded else ''}."
    )


def bucketed(profile: Profile, found: Gain) -> str:
    if shapes := profile.replay.shapes:
        share = pct(sum(shape.share_pct for shape in shapes))
        most = "the most frequent shape" if len(shapes) == 1 else f"{len(shapes)} frequent shapes"
        return (
            f"Adopt one CUDA graph for each shape that comes often: one for {most} ({share} of the "
            f"steps) {_effect(profile, found)}."
        )
    padded = profile.replay.padded
    if padded and found.basis == "measured":
        sizes = "; ".join(first_shapes(shape.inputs) for shape in padded)
        to = "one size" if len(padded) == 1 else f"{len(padded)} sizes"
        graphs = "one CUDA graph" if len(padded) == 1 else "one CUDA graph for each"
        return f"Pad the inputs to {to} ({sizes}), then adopt {graphs}: a replay " + (
            f"{_effect(profile, found)}{_padding(profile)}."
        )
    effect = f"a replay {_effect(profile, found)}{_BEFORE_PADDING}"
    if every_step_differs(profile):
        return (
            "Shapes change in every inspected step: pad the inputs to a few sizes, then adopt one "
            f"CUDA graph for each size. With fixed shapes {effect}."
        )
    return (
        f"Adopt one CUDA graph per shape ({plural(distinct_inputs(profile), 'shape')} seen) and "
        f"pad the inputs to these shapes: {effect}."
    )


def _padding(profile: Profile) -> str:
    padding = profile.replay.padding_pct
    return f", although {pct(padding)} of the padded inputs is padding" if padding else ""


def graphed(profile: Profile) -> str:
    share = profile.facts.graph_kernel_share_pct or 0.0
    launches = profile.value("graph_launches_per_step")
    per = " in most steps" if profile.step_groups else " per step"
    count = f" ({plural(launches, 'graph launch')}{per})" if launches else ""
    return f"Already graphed: {pct(share)} of the kernels in a step run inside CUDA graphs{count}."


def under_threshold(profile: Profile, found: Gain) -> str:
    iteration = profile.value("iteration_ms")
    of = "the iteration" if iteration is None else f"the {ms(iteration)} iteration"
    measured, threshold = found.basis == "measured", found.threshold_pct
    if found.is_loss or found.removable_pct <= -0.05:
        effect = f"{'makes' if measured else 'would make'} {of} {pct(-found.removable_pct)} longer"
        if not found.is_loss:
            best = f"at most {pct_beside(found.high_pct, threshold)} shorter"
            effect += f" ({best}), which is within the spread of the timings"
        return f"Stay eager: a replay {effect}."
    removes = "removes" if measured else "would remove"
    share = share_of(found.removable_pct, threshold)
    why = f", below your threshold of {pct(threshold)}"
    if not found.beyond_spread:
        bound = f" (at most {pct_beside(found.high_pct, threshold)})" if found.high_pct > 0 else ""
        why = f"{bound}, which is within the spread of the timings"
    return f"Stay eager: a replay {removes} {share} {of}{why}."


def fix_first(profile: Profile, found: Gain, wait: str) -> str:
    cost, iteration = profile.value(wait) or 0.0, profile.value("iteration_ms")
    of = f" of the {ms(iteration)} iteration" if iteration and cost <= iteration else ""
    what = f"Fix the synchronization first: it costs {ms(cost)}{of}"
    if wait == "data_wait_ms":
        what = f"Fix the input pipeline first: the GPU waits for data for {ms(cost)}{of}"
    if wait == "loader_ms":
        what = f"Fix the input pipeline first: {loader_needs(profile)}"
    measured, removed = found.basis == "measured", found.removable_pct
    of_step = f"{'removes' if measured else 'would remove'} {pct(found.step_removable_pct or 0.0)}"
    effect = "nothing from the iteration"
    if removed >= 0.05:
        effect = f"only {pct_beside(removed, found.threshold_pct)} of the iteration"
    elif removed <= -0.05:
        effect = f"{'makes' if measured else 'make'} the iteration {pct(-removed)} longer"
    return f"{what}. A replay {of_step} of the step but {effect}."


def never_pays_back(found: Gain, needed: float, expected: int) -> str:
    removes = "removes" if found.basis == "measured" else "would remove"
    return (
        f"Stay eager: the capture pays back after {plural(ceil(needed), 'step')}, and you expect "
        f"{expected:,}. A replay {removes} {pct(found.removable_pct)} of each iteration."
    )


def too_many_shapes(profile: Profile, found: Gain, fixes: list[Obstacle]) -> str:
    return (
        f"Stay eager until {clauses(fixes)}: {distinct_inputs(profile)} different shapes "
        "are too many for one graph each. With fixed shapes a replay would remove "
        f"{pct(found.removable_pct)} of the iteration."
    )


def failed(profile: Profile, found: Gain) -> str:
    reason = profile.replay.reason
    why = "" if reason is None else f": {reason_text(reason).rstrip('.')}"
    return (
        f"Inconclusive: a replay {_effect(profile, found)}, but the capture failed{why}. Fix the "
        "capture and profile again to measure it."
    )


def unsafe(profile: Profile, found: Gain) -> str:
    replay, correct = profile.replay, profile.replay.correct
    captured = replay.status in REPLAYED
    different = captured and correct.status == "different"
    what = "a capture freezes the learning rate, which is set during training. A replay"
    if captured and replay.work.same is False:
        other = "the captured step runs different GPU work than the eager step"
        what = f"{other}. A replay of the eager work"
    elif different and correct.causes:
        cause = correct.causes[0]
        at = f" ({place(cause.where)})" if cause.where else ""
        what = f"{cause_text(cause)}{at}. Once you have fixed this, a replay"
    elif different:
        largest = correct.max_update_diff
        by = f" by up to {pct(100 * largest)} of an update" if largest else ""
        what = f"the result of the replay differs from eager{by}. The replay"
    return f"Unsafe as it is: {what} {_effect(profile, found)}."


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
    if iteration is None:
        why = "no iteration was timed"
    elif reason is not None:
        why = f"{reason_text(reason)}, so the gain of a CUDA graph is not known"
    else:
        why = (
            f"an iteration takes {ms(iteration)}, but neither a trace nor a replay shows how much "
            "of it a CUDA graph removes"
        )
    return f"Inconclusive: {why}. {_deciding_action(profile)}"


def _deciding_action(profile: Profile) -> str:
    """The one action that would decide an inconclusive verdict."""
    if profile.mode == "trace":
        how = "profile the script itself" if runs_torch(profile) else "time a replay"
        return f"A trace cannot decide this, so {how}."
    if profile.replay.status in REPLAYED and profile.value("removable_pct") is not None:
        return (
            "To decide it, profile again while nothing else runs on this machine"
            f"{more_steps(profile)}."
        )
    if profile.replay.status == "skipped":
        return "A measured replay would decide it: run every pass (launchscope rules LS030)."
    return (
        "A measured replay would decide it: fix what prevents the capture and profile again "
        "(launchscope rules LS030)."
    )


def structure_unstable(profile: Profile) -> str:
    return (
        "One CUDA graph cannot serve this step as it is: the inspected steps have "
        f"{distinct_inputs(profile)} different input shapes. There are no times, because "
        f"{_why_no_times(profile)}."
    )


def structure_blocked(profile: Profile, fixes: list[Obstacle]) -> str:
    would = _EFFECTS[fixes[0].kind] if len(fixes) == 1 else "fail or be wrong"
    return (
        f"Not decided, because {_why_no_times(profile)}: whether a graph pays is not known. A "
        f"capture would {would} until {clauses(fixes)}."
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


def _effect(profile: Profile, found: Gain) -> str:
    """`shortens the iteration by 61 %, from 9.01 ms to 3.52 ms (2.56x)`."""
    estimated = not found.is_measured
    if found.removable_pct <= 0:
        return "would not shorten the iteration" if estimated else "does not shorten the iteration"
    verb = "is predicted to shorten" if estimated else "shortens"
    text = f"{verb} the iteration by {pct(found.removable_pct)}"
    before, after = profile.value("iteration_ms"), profile.value("replayed_iteration_ms")
    if not before or after is None:
        return text
    ratio = f" ({times(before / after)})" if after else ""
    return f"{text}, from {ms(before)} to {ms(after)}{ratio}"
