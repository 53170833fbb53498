"""The one sentence of a verdict, with its numbers. Each function says one outcome."""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.findings.ls035_live_scheduler import scheduler_is_frozen
from launchscope.rules.profile_queries import Gain, branches, distinct_inputs, forward_unseen, waits
from launchscope.rules.shape_change import every_step_differs, growth
from launchscope.rules.verdict.obstacles import GROWTH, PADDING, Obstacle, clauses
from launchscope.wording import figures, ms, pct, pct_beside, place, plural, times

_PARTS = {"forward_backward": "its forward and backward"}


def adopt(profile: Profile, found: Gain) -> str:
    if found.basis == "measured":
        part = _PARTS.get(profile.replay.scope or "", "the step")
        return f"Adopt CUDA graphs: a replay of {part} takes {_taken(profile, found)}."
    return (
        "Adopt CUDA graphs, if a capture works: a replay is predicted to take "
        f"{_taken(profile, found)}; none was measured."
    )


def after_fixes(profile: Profile, found: Gain, fixes: list[Obstacle]) -> str:
    would = "is predicted to take" if found.basis == "predicted" else "takes"
    what = clauses(fixes) or "what blocks the capture is mended"
    padded = any(fix.kind in (PADDING, GROWTH) for fix in fixes)
    more = ", padding not counted" if padded else ""
    return f"Worth a CUDA graph once {what}: a replay {would} {_taken(profile, found)}{more}."


def bucketed(profile: Profile, found: Gain) -> str:
    would = "takes" if found.basis == "measured" else "is predicted to take"
    if every_step_differs(profile):
        return (
            "Shapes change in every step seen: pad the inputs to a few sizes first, then adopt "
            f"one CUDA graph for each; a replay {would} {_taken(profile, found)}, padding not "
            "counted."
        )
    return (
        f"Adopt one CUDA graph per shape ({distinct_inputs(profile)} shapes seen), inputs padded "
        f"to them: a replay {would} {_taken(profile, found)}, padding not counted."
    )


def graphed(profile: Profile) -> str:
    share = profile.facts.graph_kernel_share_pct or 0.0
    launches = profile.value("graph_launches_per_step")
    by = "" if launches is None else f" ({plural(launches, 'graph launch')} a step)"
    return f"Already graphed: {pct(share)} of the step's kernels run inside CUDA graphs{by}."


def under_threshold(profile: Profile, found: Gain) -> str:
    iteration = profile.value("iteration_ms")
    of = "the iteration" if iteration is None else f"the {ms(iteration)} iteration"
    if found.is_loss:
        is_ = "is" if found.basis == "measured" else "would be"
        return f"Stay eager: a replay {is_} slower by {pct(-found.removable_pct)} of {of}."
    if not found.beyond_spread:
        return (
            f"Stay eager: a replay gains nothing that can be told from the spread "
            f"({pct(found.removable_pct)} of {of}, at most {pct(found.high_pct)})."
        )
    would = "takes" if found.basis == "measured" else "would take"
    return (
        f"Stay eager: a replay {would} "
        f"{pct_beside(found.removable_pct, profile.threshold_pct)} off {of}, under your "
        f"threshold of {pct(profile.threshold_pct)}."
    )


def mend_first(profile: Profile, found: Gain) -> str:
    name, cost = waits(profile)[0]
    step = found.step_pct or 0.0
    kept = "the GPU waits for data" if name == "data loader" else "synchronisation costs"
    iteration = profile.value("iteration_ms")
    of = "" if iteration is None else f" of {ms(iteration)}"
    return (
        f"Mend the {'input pipeline' if name == 'data loader' else name} first: {kept} {ms(cost)}"
        f"{of}, so a replay takes {pct(step)} off the step but "
        f"{'only ' if found.removable_pct > 0 else ''}{_share(found)} off the iteration."
    )


def never_pays_back(found: Gain, needed: float, expected: int) -> str:
    return (
        f"Stay eager: the capture pays back after {plural(round(needed), 'step')} and you expect "
        f"{expected:,}, although a replay takes {pct(found.removable_pct)} off each iteration."
    )


def too_many_shapes(profile: Profile, found: Gain, fixes: list[Obstacle]) -> str:
    return (
        f"Stay eager until {clauses(fixes)}: {distinct_inputs(profile)} different shapes "
        f"are too many for one graph each, although a replay would take "
        f"{pct(found.removable_pct)} off the iteration."
    )


def failed(profile: Profile, found: Gain) -> str:
    reason = profile.replay.reason or "no reason was given"
    return (
        f"Inconclusive: a replay is predicted to take {_taken(profile, found)}, but the capture "
        f"failed: {reason.rstrip('.')}."
    )


def unsafe(profile: Profile, found: Gain, code: str) -> str:
    if code == "LS032":
        return (
            "Unsafe as it stands: the captured step does other GPU work than the eager step. "
            f"Replaying the eager work is predicted to take {_taken(profile, found)}."
        )
    if code == "LS033" and profile.replay.correct.causes:
        cause = profile.replay.correct.causes[0]
        at = f" ({place(cause.where)})" if cause.where else ""
        return (
            f"Unsafe as it stands: {cause.text}{at}; once that is mended, a replay takes "
            f"{_taken(profile, found)}."
        )
    if code == "LS033":
        largest = profile.replay.correct.max_update_diff
        by = "" if largest is None else f" by up to {figures(100 * largest, 2)} % of an update"
        return (
            f"Unsafe as it stands: the replay's result differs from eager's{by}, although it "
            f"would take {_taken(profile, found)}."
        )
    return (
        "Unsafe as it stands: a capture freezes the learning rate that your scheduler changes, "
        f"although a replay would take {_taken(profile, found)}."
    )


def within_spread(profile: Profile, found: Gain) -> str:
    then = "time more steps"
    if profile.mode == "trace":
        then = "profile the script itself, as a trace cannot tell"
    return (
        f"Inconclusive: the timings only bound the gain between {pct(found.low_pct)} and "
        f"{pct(found.high_pct)} of the iteration; {then}."
    )


def contradiction(excess_pct: float) -> str:
    return (
        f"Inconclusive: the traced GPU work lasts {pct(excess_pct)} longer than the timed "
        "iteration it belongs to."
    )


def no_gain_known(profile: Profile) -> str:
    iteration = profile.value("iteration_ms")
    if iteration is None:
        return "Inconclusive: no iteration was timed."
    reason = profile.facts.gain_unknown
    if reason is not None:
        return f"Inconclusive: {reason}, so what a CUDA graph would remove is not known."
    return (
        f"Inconclusive: an iteration takes {ms(iteration)}, but neither a trace nor a replay "
        "says how much of it a CUDA graph would remove."
    )


def structure_unstable(profile: Profile) -> str:
    return (
        "One CUDA graph cannot serve this step as it stands: "
        f"{distinct_inputs(profile)} input shapes in the inspected steps. Times were not "
        "measured (no GPU)."
    )


def structure_shapes(profile: Profile) -> str:
    """Nothing but the shapes is in the way."""
    if growth(profile) is not None:
        seen = (
            "the inputs grow by one from step to step, so a capture would need them "
            "preallocated to the longest length (a static cache)"
        )
    elif every_step_differs(profile):
        seen = (
            "the shapes change in every step seen, so the inputs would be padded to a few "
            "sizes before a capture"
        )
    else:
        seen = (
            f"the inputs take {distinct_inputs(profile)} shapes, so a capture would need one "
            "graph for each, or padding"
        )
    return f"Not decided without a GPU: {seen}."


def structure_blocked(profile: Profile, fixes: list[Obstacle]) -> str:
    would = "serve the wrong path" if branches(profile) else "fail"
    if forward_unseen(profile):
        would = "be wrong"
    if len(fixes) > 1:
        would = "fail or be wrong"
    return (
        "Not decided without a GPU: whether a graph pays is unknown, and a capture would "
        f"{would} until {clauses(fixes)}."
    )


def structure_clear(profile: Profile) -> str:
    ops = profile.value("device_ops_per_step")
    counted = "" if ops is None else f" of {plural(ops, 'device operation')}"
    shapes = "its shapes are stable and " if profile.shapes.stable else ""
    unseen = wrong = ""
    if profile.facts.amp_left_out:
        unseen = ", autocast and GradScaler left out"
    if scheduler_is_frozen(profile):
        wrong = ", but a replay would keep the learning rate of the capture until it is a tensor"
    return (
        f"Not decided without a GPU: the step{counted} can be captured as far as the structure "
        f"tells ({shapes}nothing was seen that stops a capture{unseen}){wrong}."
    )


def _share(found: Gain) -> str:
    return pct(found.removable_pct) if found.removable_pct > 0 else "nothing"


def _taken(profile: Profile, found: Gain) -> str:
    """`61 % off the iteration, from 9.01 ms to 3.52 ms (2.56x)`."""
    before, after = profile.value("iteration_ms"), profile.value("projected_iteration_ms")
    text = f"{_share(found)} off the iteration"
    if before is None or after is None:
        return text
    speedup = profile.value("iteration_speedup") or (before / after if after else None)
    ratio = "" if speedup is None else f" ({times(speedup)})"
    return f"{text}, from {ms(before)} to {ms(after)}{ratio}"
