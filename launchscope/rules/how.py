"""The concrete next step of a verdict: what to type into the script, in order."""

from __future__ import annotations

from launchscope.model import Profile, Recommendation, StepSource
from launchscope.rules import graphedcallables, optimizers, recipe
from launchscope.rules.ls035_live_scheduler import scheduler_is_frozen
from launchscope.rules.obstacles import PADDING, obstacles
from launchscope.rules.shape_change import every_step_differs
from launchscope.rules.wording import listed, place, plural, size_of


def how_to(profile: Profile, recommendation: Recommendation) -> str | None:
    """Numbered instructions with the capture pattern for this step; None when there is no work."""
    if recommendation in ("adopt", "adopt_bucketed"):
        steps = _preparation(profile, recommendation)
        if recommendation == "adopt_bucketed" and every_step_differs(profile):
            steps = [*_mending(profile), *steps]
        return _numbered(steps, _code(profile, recommendation))
    if recommendation in ("adopt_after_fixes", "unsafe"):
        padded = any(obstacle.kind == PADDING for obstacle in obstacles(profile))
        then: Recommendation = "adopt_bucketed" if padded else "adopt"
        steps = [*_mending(profile), *_preparation(profile, then)]
        return _numbered(steps, _code(profile, then))
    if recommendation == "inconclusive" and profile.mode == "rehearsal":
        steps = [*_mending(profile), "Run the same command on a machine with a GPU."]
        return _numbered(steps, "")
    return None


def _numbered(steps: list[str], code: str) -> str:
    lines = [f"{i}. {step}" for i, step in enumerate(steps, 1)]
    return "\n".join(lines) + (f"\n\n{code}" if code else "")


def _mending(profile: Profile) -> list[str]:
    """What stands between this script and a correct capture."""
    steps = [obstacle.todo for obstacle in obstacles(profile)]
    if scheduler_is_frozen(profile):
        steps.append("Hold the learning rate in a tensor on the GPU (launchscope rules LS035).")
    if profile.replay.work.same is False:
        steps.append("Make eager and captured run the same kernels (launchscope rules LS032).")
    elif profile.replay.correct.status == "different" and not scheduler_is_frozen(profile):
        causes = profile.replay.correct.causes
        at = listed(list(dict.fromkeys(place(cause.where) for cause in causes if cause.where)))
        what = f"Mend what the capture froze at {at}" if at else "Find what the capture froze"
        steps.append(f"{what} (launchscope rules LS033).")
    return steps


def _preparation(profile: Profile, recommendation: str) -> list[str]:
    steps = []
    waits = profile.facts.inside_step_syncs
    if profile.mode == "trace" and waits:
        steps.append(
            "Take what makes the host wait out of the part to capture: the trace holds "
            f"{plural(waits, 'synchronisation')} in a step, and a capture fails there "
            "(launchscope rules LS021)."
        )
    needed = optimizers.changes_needed(profile)
    if needed:
        made = "the capture was made with" if profile.replay.changes else "a capture needs"
        steps.append(f"Set what {made}: " + "; ".join(_named(profile, needed)))
    ddp = profile.environment.world_size > 1
    steps.append(
        "Put the script on a side stream before its first forward pass"
        + (" and before DDP is constructed" if ddp else "")
        + f", and run at least {recipe.warmup(profile)} steps eagerly"
        + (" (DDP needs them)." if ddp else ".")
    )
    steps.append(_inputs(profile))
    source = recipe.step_code(profile)
    if source is not None and source.frozen and recipe.rounds(profile) == 1:
        values = [f"`{name}`" for name in source.frozen]
        verb = "are plain Python values" if len(values) > 1 else "is a plain Python value"
        steps.append(
            f"{listed(values)} {verb} that the loop changes and the step reads: a graph keeps "
            "what it was at the capture. Make it a tensor on the GPU and fill it before the replay."
        )
    if source is not None and source.fetched:
        values = [f"`{name}`" for name in source.fetched]
        steps.append(
            f"{listed(values)} {'come' if len(values) > 1 else 'comes'} from inside the step, "
            "which a replay does not run: fetch before the step and copy into tensors that keep "
            "their addresses, one for each that the step needs."
        )
    if source is not None and (source.kept or source.unseen) and recipe.rounds(profile) == 1:
        steps.append(_told_of_batch(source))
    steps += _afterwards(profile, recommendation)
    steps.append(_capture(profile, recommendation))
    return steps


def _told_of_batch(source: StepSource) -> str:
    """What a static batch does not follow of the loop's own."""
    told = []
    if source.kept:
        names = listed([f"`{name}`" for name in source.kept])
        stay, change = ("stay", "they change") if len(source.kept) > 1 else ("stays", "it changes")
        told.append(
            f"{names} {stay} in the static batch as in the first one: if {change} from step to "
            "step and the step reads what is there, copy it in as well, as a tensor."
        )
    if source.unseen:
        names = listed([f"`{name}`" for name in source.unseen])
        told.append(
            f"{names} {'hold' if len(source.unseen) > 1 else 'holds'} inputs of the step that "
            "cannot be exchanged from outside: give the step the tensors themselves."
        )
    return " ".join(told)


def _named(profile: Profile, changes: tuple[str, ...]) -> list[str]:
    """The changes with the variables they concern, where those are known."""
    source = profile.facts.step_source
    variables_of = source.optimizers if source is not None else ()
    told = []
    for change in changes:
        kind = change.split(" ")[0]
        variables = [f"`{name}`" for name, owner in variables_of if owner == kind]
        several = len(variables) > 1 or (variables and variables != ["`optimizer`"])
        told.append(f"{change} ({listed(variables)})" if several else change)
    return told


def _inputs(profile: Profile) -> str:
    source = recipe.step_code(profile)
    if source is not None and source.inputs:
        moving = recipe.moving(source)
        fixed = [f"`{i.expression}`" for i in source.inputs if i.constant]
        parts = []
        if moving:
            shown = [
                f"`{i.expression}` ({_shape(i.shape)} {i.dtype.removeprefix('torch.')})"
                for i in moving
            ]
            parts.append(f"Copy {listed(shown)} into tensors that keep their addresses.")
        if fixed:
            stay = "stays the same tensor" if len(fixed) == 1 else "stay the same tensors"
            parts.append(f"{listed(fixed)} {stay}: nothing to copy.")
        return " ".join(parts)
    tensors, size = profile.facts.input_tensors, profile.facts.input_bytes
    if tensors:
        amount = f" ({size_of(size)})" if size else ""
        shapes = profile.shapes.signatures[0].inputs if profile.shapes.signatures else ""
        which = f": {shapes}" if shapes else ""
        return (
            f"Keep the {plural(tensors, 'input tensor')} of the step{amount} at fixed addresses "
            f"and copy each batch into them{which}."
        )
    return "Keep the inputs of the step at fixed addresses and copy each batch in."


def _shape(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes)) or "one value,"


def _capture(profile: Profile, recommendation: str) -> str:
    source = recipe.step_code(profile)
    if source is not None and recommendation == "adopt" and recipe.rounds(profile) > 1:
        return (
            f"The step is {recipe.rounds(profile)} rounds of {recipe.place(source)}, whose "
            "gradients add up. Capture all of them in one graph, each with inputs of its own, "
            "and with the gradients cleared before the capture only:"
        )
    if source is not None and _whole(profile) and recommendation == "adopt":
        return f"The step is {recipe.place(source)}. Put it into a function and replay it:"
    begins = profile.step.source if profile.step is not None else None
    if begins is None:
        return "Capture the step, then replay it:"
    if profile.facts.step_source is not None and source is None:
        return (
            f"The step runs in a library's loop, called at {begins}: override the library's "
            "training step, or graph the model alone (below). What is to be captured:"
        )
    return f"Capture the step that begins at {begins}, then replay it:"


def _whole(profile: Profile) -> bool:
    """Whether all of the step is captured."""
    scope = profile.step.scope if profile.step is not None else None
    return scope is None or recipe.captured_scope(profile) == scope


def _afterwards(profile: Profile, recommendation: str) -> list[str]:
    source = recipe.step_code(profile)
    names = [f"`{name}`" for name in source.results] if source is not None else []
    if recommendation == "adopt_bucketed":
        return [_alternatives(profile)]
    trains = profile.step is None or profile.step.scope != "forward"
    value = listed(names) if names else ("`loss`" if trains else "`static_out`")
    are = "are the same tensors" if len(names) > 1 else "is the same tensor"
    copied = "copy them" if len(names) > 1 else "copy it"
    then = "call .item() only when you log" if trains else f"{copied} before the next replay"
    return [f"After each replay {value} {are} with new values: {then}.", _alternatives(profile)]


def _alternatives(profile: Profile) -> str:
    """Two other ways to the same end, and when each fits."""
    compiled = profile.step is not None and profile.step.compiled
    first = (
        '`torch.compile(model, mode="reduce-overhead")` if '
        + ("compiling is wanted anyway" if not compiled else "you keep torch.compile")
        + " and one graph per input shape will do"
    )
    return f"Instead: {first}; {graphedcallables.offer(profile)}."


def _code(profile: Profile, recommendation: str) -> str:
    source = recipe.step_code(profile)
    mine = source is not None and recipe.rounds(profile) == 1
    if source is not None and mine and recommendation == "adopt" and _whole(profile):
        return recipe.specific(profile, source)
    return recipe.generic(profile, recommendation)
