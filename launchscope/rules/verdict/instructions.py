"""What to do about a verdict: at most five steps in words, in order."""

from __future__ import annotations

from collections.abc import Iterator

from launchscope.analysis.replay_model.capturable import ASK_FOR_CAPTURABLE
from launchscope.model import OptimizerChange, Profile, Recommendation
from launchscope.rules.findings.ls035_live_scheduler import scheduler_is_frozen
from launchscope.rules.verdict.obstacles import obstacles
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
_PARTS = {"forward_backward": "the forward and backward of ", "forward": "the forward of "}

# The code of the rule that explains a fix, and the fix itself.
Fix = tuple[str, str]


def instructions(profile: Profile, recommendation: Recommendation) -> tuple[str, ...]:
    """One step per entry; empty if there is nothing to do."""
    if recommendation in ("adopt", "adopt_bucketed"):
        shape = recommendation == "adopt_bucketed"
        steps = [*_optimizer(profile), _inputs(profile), *_adoption(profile, per_shape=shape)]
        fixes = [*_waits(profile), *(_fixes(profile) if shape else ())]
        return (*_at_most(fixes, max(1, _MOST_STEPS - len(steps))), *steps)
    if recommendation in ("adopt_after_fixes", "unsafe"):
        fixes = list(_fixes(profile)) or [_unnamed(profile)]
        steps = [*_at_most(fixes, _MOST_FIXES), *_optimizer(profile)]
        if len(steps) + 1 < _MOST_STEPS:
            steps.append(_inputs(profile))
        padded = any(obstacle.kind == "padding" for obstacle in obstacles(profile))
        what = _captured(profile, per_shape=padded)
        return (*steps, f"Profile again, then capture {what} ({_GUIDE}).")
    if recommendation == "inconclusive" and profile.mode == "rehearsal":
        return (
            *_at_most(list(_fixes(profile)), _MOST_FIXES),
            "Run the same command on a machine with a GPU to measure the gain.",
            f"Read {_GUIDE} for the changes that a graph needs in a script.",
        )
    return ()


def _at_most(fixes: list[Fix], count: int) -> list[str]:
    """The fixes; if there are more than `count`, the last entry stands for the rest."""
    texts = [f"{fix} (launchscope rules {code})." for code, fix in fixes]
    if len(fixes) <= count:
        return texts
    rest = listed(list(dict.fromkeys(code for code, _ in fixes[count - 1 :])))
    more = f"Fix the findings of {rest} (launchscope rules CODE explains each)."
    return [*texts[: count - 1], more]


def _fixes(profile: Profile) -> Iterator[Fix]:
    """What prevents a correct capture of this step."""
    yield from ((obstacle.code, obstacle.fix) for obstacle in obstacles(profile))
    frozen = scheduler_is_frozen(profile)
    if frozen:
        yield "LS035", "Keep the learning rate in a tensor on the GPU"
    if profile.replay.work.same is False:
        yield "LS032", "Make eager and the capture run the same kernels"
    elif profile.replay.correct.status == "different" and not frozen:
        causes = profile.replay.correct.causes
        at = listed(list(dict.fromkeys(place(cause.where) for cause in causes if cause.where)))
        yield "LS033", f"Fix the cause at {at}" if at else "Find what the capture froze"


def _unnamed(profile: Profile) -> Fix:
    """The fix if no rule names one."""
    at = f" at {place(profile.replay.where)}" if profile.replay.where else ""
    return "LS031", f"Remove what prevents the capture{at}"


def _waits(profile: Profile) -> Iterator[Fix]:
    """A trace does not name the blocking lines, but it counts the waits."""
    if profile.mode == "trace" and profile.facts.inside_step_syncs:
        waits = plural(profile.facts.inside_step_syncs, "synchronization")
        yield (
            "LS021",
            "Move the operations that make the host wait out of the captured part: the trace has "
            f"{waits} per step, and a capture fails there",
        )


def _optimizer(profile: Profile) -> Iterator[str]:
    """The flags that the measured capture set, else those that torch asks for."""
    change = "Change the optimizer as the measured capture did"
    changes = profile.replay.changes
    if profile.replay.status not in _REPLAYED:
        change = "Change the optimizer, because PyTorch refuses the capture otherwise"
        classes = dict.fromkeys(profile.facts.optimizer_classes or ())
        needed = [name for name in classes if name in ASK_FOR_CAPTURABLE]
        changes = tuple(OptimizerChange(name, "capturable", True) for name in needed)
    if changes:
        yield f"{change}: {listed(list(map(str, changes)))}."


def _inputs(profile: Profile) -> str:
    tensors, size = profile.facts.input_tensors, profile.facts.input_bytes
    if not tensors:
        return "Allocate the inputs of the step once and copy each batch into them with copy_()."
    noun, them = ("input tensor", "it") if tensors == 1 else (f"{tensors} input tensors", "them")
    amount = f" ({size_of(size)})" if size else ""
    signatures = profile.shapes.signatures
    known = len(signatures) == 1 and tensors <= _MOST_SHAPES and signatures[0].inputs
    named = f": {shapes(signatures[0].inputs)}" if known else ""
    return (
        f"Allocate the {noun} of the step{amount} once and copy each batch into {them} with "
        f"copy_(){named}."
    )


def _adoption(profile: Profile, *, per_shape: bool) -> tuple[str, str]:
    """Warm-up and capture, then the loop."""
    warm_up = f"Run at least {_WARMUP} steps eagerly on a side stream"
    if profile.environment.world_size > 1:
        warm_up = (
            "Construct the DDP model in a side stream's context. Run at least "
            f"{_DDP_WARMUP} steps eagerly on a side stream (DDP needs them)"
        )
    trains = profile.step is None or profile.step.scope != "forward"
    kept = "read the loss only when you log" if trains else "copy an output that you keep"
    rest = " and run the rest of the step eagerly" if _is_part(profile) else ""
    return (
        f"{warm_up}, then capture {_captured(profile, per_shape=per_shape)} as {_GUIDE} shows.",
        f"Replay the graph in your loop{rest}. Each replay writes its results into the same "
        f"tensors: {kept}.",
    )


def _captured(profile: Profile, *, per_shape: bool) -> str:
    """What to capture, with the line where the step begins."""
    if per_shape:
        return "one graph per shape"
    begins = profile.step.source if profile.step is not None else None
    at = f" that begins at {place(begins)}" if begins else ""
    part = _PARTS.get(profile.replay.scope or "", "") if _is_part(profile) else ""
    return f"{part}the step{at}"


def _is_part(profile: Profile) -> bool:
    """Whether the replay covers only a part of the step."""
    scope = profile.replay.scope if profile.replay.status in _REPLAYED else None
    whole = profile.step.scope if profile.step is not None else "full_step"
    return scope is not None and scope != whole
