"""What to do about a verdict: at most five steps in words, in order."""

from __future__ import annotations

from collections.abc import Iterator

from launchscope.model import CAPTURE_FLAGS, OptimizerChange, Profile, Recommendation
from launchscope.rules.findings.rehearsal import use_the_gpu
from launchscope.rules.findings.wrong_result import codes_of
from launchscope.rules.profile_queries import PARTS, REPLAYED, runs_torch
from launchscope.rules.verdict.obstacles import freezes_rate, obstacles
from launchscope.wording import listed, place, plural

_GUIDE = "launchscope docs get-started"
_MOST_FIXES = 3

# The code of the rule that explains a fix, and the fix itself.
Fix = tuple[str, str]


def instructions(profile: Profile, recommendation: Recommendation) -> tuple[str, ...]:
    """One step per entry; empty if there is nothing to do."""
    fixes, unused = _fixes(profile), profile.facts.unused_gpu
    if recommendation == "adopt" and not runs_torch(profile):
        return (
            *_at_most(list(_waits(profile)), 1),
            "Allocate the inputs of the step once and copy each new input into them.",
            "Capture the launches of the step between cudaStreamBeginCapture and "
            "cudaStreamEndCapture, and launch the graph in your loop.",
        )
    if recommendation in ("adopt", "adopt_bucketed"):
        shape = recommendation == "adopt_bucketed"
        first = [*_waits(profile), *(fixes if shape else ())]
        capture = f"Capture {_captured(profile, per_shape=shape)} ({_GUIDE})."
        return (*_at_most(first, _MOST_FIXES), *_optimizer(profile), capture)
    if recommendation in ("adopt_after_fixes", "unsafe"):
        at = f" at {place(profile.replay.where)}" if profile.replay.where else ""
        unnamed = ("LS030", f"Remove what prevents the capture{at}")
        steps = [*_at_most(fixes or [unnamed], _MOST_FIXES), *_optimizer(profile)]
        padded = any(obstacle.kind == "padding" for obstacle in obstacles(profile))
        what = _captured(profile, per_shape=padded)
        return (*steps, f"Profile again, then capture {what} ({_GUIDE}).")
    if recommendation == "inconclusive" and profile.mode == "rehearsal":
        return (
            *_at_most(fixes, _MOST_FIXES),
            *(_optimizer(profile) if profile.facts.lacks_capturable else ()),
            "Run this on a machine with a GPU to measure the gain."
            if unused is None
            else use_the_gpu(unused),
            f"{_GUIDE} shows the changes that a graph needs in a script.",
        )
    return ()


def _at_most(fixes: list[Fix], count: int) -> list[str]:
    """The fixes; if there are more than `count`, the last entry names the rest."""
    texts = [f"{fix} (launchscope rules {code})." for code, fix in fixes]
    if len(fixes) <= count:
        return texts
    rest = listed(list(dict.fromkeys(code for code, _ in fixes[count - 1 :])))
    more = f"Fix the findings of {rest} (launchscope rules CODE explains each)."
    return [*texts[: count - 1], more]


def _fixes(profile: Profile) -> list[Fix]:
    """What prevents a correct capture of this step."""
    fixes = [(obstacle.code, obstacle.fix) for obstacle in obstacles(profile)]
    if profile.facts.scheduler_live and not freezes_rate(profile):
        fixes.append(("LS035", "Keep the learning rate in a tensor on the GPU"))
    if profile.replay.work.same is False:
        fixes.append(("LS033", "Make eager and the capture run the same kernels"))
    elif profile.replay.correct.status == "different" and not profile.facts.scheduler_live:
        causes = profile.replay.correct.causes
        at = listed(list(dict.fromkeys(place(cause.where) for cause in causes if cause.where)))
        what = f"Fix the cause at {at}" if at else "Find what the capture froze"
        fixes.append((codes_of(profile.replay.correct)[0], what))
    return fixes


def _waits(profile: Profile) -> Iterator[Fix]:
    """A trace does not name the blocking lines, but it counts the waits."""
    syncs = profile.value("syncs_per_step")
    if profile.mode == "trace" and syncs:
        waits = plural(syncs, "synchronization")
        yield (
            "LS021",
            "Move the operations that make the host wait out of the captured part: the trace has "
            f"{waits} per step, and a capture fails there",
        )


def _optimizer(profile: Profile) -> Iterator[str]:
    """The flags that the measured capture set, else those that torch asks for."""
    change = "Change the optimizer as the measured capture did"
    changes = profile.replay.changes
    if profile.replay.status not in REPLAYED:
        change = "Change the optimizer, because PyTorch refuses the capture otherwise"
        flags = {known.optimizer: known.flag for known in CAPTURE_FLAGS if known.required}
        classes = dict.fromkeys(profile.facts.optimizer_classes or ())
        needed = [name for name in classes if name in flags]
        changes = tuple(OptimizerChange(name, flags[name], True) for name in needed)
    if changes:
        yield f"{change}: {listed(list(map(str, changes)))}."


def _captured(profile: Profile, *, per_shape: bool) -> str:
    """What to capture, with the line where the step begins."""
    if per_shape:
        return "one graph per shape"
    begins = profile.step.source if profile.step is not None else None
    at = f" that begins at {place(begins)}" if begins else ""
    return f"{_part(profile)}the step{at}"


def _part(profile: Profile) -> str:
    """`the forward of ` if the replay covers only that part of the step."""
    scope = profile.replay.scope if profile.replay.status in REPLAYED else None
    whole = profile.step.scope if profile.step is not None else "full_step"
    return f"{PARTS[scope]} of " if scope in PARTS and scope != whole else ""
