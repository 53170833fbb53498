"""What to do about a verdict: at most five steps in words, in order."""

from __future__ import annotations

from launchscope.analysis.replay_model.capturable import ASK_FOR_CAPTURABLE
from launchscope.model import OptimizerChange, Profile, Recommendation
from launchscope.rules.findings.ls035_live_scheduler import scheduler_is_frozen
from launchscope.rules.verdict.obstacles import PADDING, obstacles
from launchscope.wording import listed, place, plural, shapes, size_of

__all__ = ["instructions"]

_GUIDE = "docs/adopting-a-graph.md"
_MOST_FIXES = 3
_MOST_STEPS = 5
_MOST_SHAPES = 4
# NVIDIA's guide: 3 warm-up steps before a capture, 11 under DistributedDataParallel.
_WARMUP, _DDP_WARMUP = 3, 11
# A replay of another status has the scope that was tried, or none that means anything.
_REPLAYED = ("measured", "what_if")

# The code of the rule that explains a fix, and the fix itself.
Fix = tuple[str, str]


def instructions(profile: Profile, recommendation: Recommendation) -> tuple[str, ...]:
    """One step per entry; empty if there is nothing to do."""
    if recommendation in ("adopt", "adopt_bucketed"):
        steps = [*_optimizer(profile), _inputs(profile), *_adoption(profile, recommendation)]
        fixes = [*_waits(profile), *(_fixes(profile) if recommendation != "adopt" else [])]
        return (*_at_most(fixes, max(1, _MOST_STEPS - len(steps))), *steps)
    if recommendation in ("adopt_after_fixes", "unsafe"):
        fixes = _fixes(profile) or [_unnamed(profile)]
        steps = [*_at_most(fixes, _MOST_FIXES), *_optimizer(profile)]
        if len(steps) + 1 < _MOST_STEPS:
            steps.append(_inputs(profile))
        what = "one graph per shape" if _is_padded(profile) else _captured(profile)
        return (*steps, f"Profile again, then capture {what} ({_GUIDE}).")
    if recommendation == "inconclusive" and profile.mode == "rehearsal":
        return (
            *_at_most(_fixes(profile), _MOST_FIXES),
            "Run the same command on a machine with a GPU to measure the gain.",
            f"Read {_GUIDE} for the changes that a graph needs in a script.",
        )
    return ()


def _at_most(fixes: list[Fix], count: int) -> list[str]:
    """The fixes; if there are more than `count`, the last entry stands for the rest."""
    if len(fixes) <= count:
        return [text for _, text in fixes]
    rest = listed(list(dict.fromkeys(code for code, _ in fixes[count - 1 :])))
    return [
        *(text for _, text in fixes[: count - 1]),
        f"Fix the findings of {rest} (launchscope rules CODE explains each).",
    ]


def _fixes(profile: Profile) -> list[Fix]:
    """What prevents a correct capture of this step."""
    fixes = [(obstacle.code, obstacle.todo) for obstacle in obstacles(profile)]
    if scheduler_is_frozen(profile):
        fixes.append(
            ("LS035", "Keep the learning rate in a tensor on the GPU (launchscope rules LS035).")
        )
    if profile.replay.work.same is False:
        fixes.append(
            ("LS032", "Make eager and the capture run the same kernels (launchscope rules LS032).")
        )
    elif profile.replay.correct.status == "different" and not scheduler_is_frozen(profile):
        causes = profile.replay.correct.causes
        at = listed(list(dict.fromkeys(place(cause.where) for cause in causes if cause.where)))
        what = f"Fix the cause at {at}" if at else "Find what the capture froze"
        fixes.append(("LS033", f"{what} (launchscope rules LS033)."))
    return fixes


def _unnamed(profile: Profile) -> Fix:
    """The fix if no rule names one."""
    at = f" at {place(profile.replay.where)}" if profile.replay.where else ""
    return "LS031", f"Remove what prevents the capture{at} (launchscope rules LS031)."


def _waits(profile: Profile) -> list[Fix]:
    """A trace does not name the blocking lines, but it counts the waits."""
    waits = profile.facts.inside_step_syncs
    if profile.mode != "trace" or not waits:
        return []
    return [
        (
            "LS021",
            "Move the operations that make the host wait out of the captured part: the trace "
            f"has {plural(waits, 'synchronization')} per step, and a capture fails there "
            "(launchscope rules LS021).",
        )
    ]


def _optimizer(profile: Profile) -> list[str]:
    """The flags that the measured capture set, else those that torch asks for."""
    if profile.replay.status in _REPLAYED:
        changes = list(map(str, profile.replay.changes))
        change = "Change the optimizer as the measured capture did: {}."
    else:
        kinds = dict.fromkeys(profile.facts.optimizer_classes or ())
        changes = [
            str(OptimizerChange(kind, "capturable", True))
            for kind in kinds
            if kind in ASK_FOR_CAPTURABLE
        ]
        change = "Change the optimizer, because PyTorch refuses the capture otherwise: {}."
    return [change.format(listed(changes))] if changes else []


def _inputs(profile: Profile) -> str:
    tensors, size = profile.facts.input_tensors, profile.facts.input_bytes
    if not tensors:
        return "Allocate the inputs of the step once and copy each batch into them with copy_()."
    noun = "input tensor" if tensors == 1 else f"{tensors} input tensors"
    amount = f" ({size_of(size)})" if size else ""
    signatures = profile.shapes.signatures
    known = len(signatures) == 1 and tensors <= _MOST_SHAPES and signatures[0].inputs
    named = f": {shapes(signatures[0].inputs)}" if known else ""
    them = "it" if tensors == 1 else "them"
    return (
        f"Allocate the {noun} of the step{amount} once and copy each batch into {them} with "
        f"copy_(){named}."
    )


def _adoption(profile: Profile, recommendation: Recommendation) -> list[str]:
    """Warm-up and capture, then the loop."""
    ddp = profile.environment.world_size > 1
    what = _captured(profile)
    if recommendation == "adopt_bucketed":
        what = "one graph per shape"
    warm_up = f"Run at least {_DDP_WARMUP if ddp else _WARMUP} steps eagerly on a side stream"
    if ddp:
        warm_up = f"Construct the DDP model in a side stream's context. {warm_up} (DDP needs them)"
    trains = profile.step is None or profile.step.scope != "forward"
    kept = "read the loss only when you log" if trains else "copy an output that you keep"
    rest = " and run the rest of the step eagerly" if _is_part(profile) else ""
    return [
        f"{warm_up}, then capture {what} as {_GUIDE} shows.",
        f"Replay the graph in your loop{rest}. Each replay writes its results into the same "
        f"tensors: {kept}.",
    ]


def _captured(profile: Profile) -> str:
    """What to capture, with the line where the step begins."""
    begins = profile.step.source if profile.step is not None else None
    at = f" that begins at {place(begins)}" if begins else ""
    scope = profile.replay.scope if _is_part(profile) else None
    parts = {"forward_backward": "the forward and backward of ", "forward": "the forward of "}
    return f"{parts.get(scope or '', '')}the step{at}"


def _is_part(profile: Profile) -> bool:
    """Whether the replay covers only a part of the step."""
    scope = profile.replay.scope if profile.replay.status in _REPLAYED else None
    whole = profile.step.scope if profile.step is not None else "full_step"
    return scope is not None and scope != whole


def _is_padded(profile: Profile) -> bool:
    return any(obstacle.kind == PADDING for obstacle in obstacles(profile))
