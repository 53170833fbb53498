"""When torch.cuda.make_graphed_callables fits a step, by how the step calls its models."""

from __future__ import annotations

from launchscope.model import ModelCall, Profile
from launchscope.rules.wording import listed

__all__ = ["offer", "refused", "samples"]


def offer(profile: Profile) -> str:
    """The alternative in words: when it fits, or why it does not."""
    trains = profile.step is None or profile.step.scope != "forward"
    when = (
        "the loss, the optimizer or logging has to stay eager"
        if trains
        else "only this module is to be graphed and its callers stay as they are"
    )
    calls = profile.facts.model_calls or ()
    fitting = [call for call in calls if not _reasons(profile, call)]
    told = [
        f"{call.module} {listed(reasons)}" for call in calls if (reasons := _reasons(profile, call))
    ]
    why = "; ".join(dict.fromkeys(told))
    if calls and not fitting:
        return f"`torch.cuda.make_graphed_callables` does not fit: {why}"
    text = f"`torch.cuda.make_graphed_callables(model, {samples(profile)})` if {when}"
    if not calls:
        text += ", and the model has no hooks and takes and returns tensors only, by position"
    if told:
        names = listed(list(dict.fromkeys(call.module for call in fitting)))
        text += f" (for {names} alone: {why})"
    if any(call.autocast for call in fitting):
        text += ", made and called in a torch.autocast with cache_enabled=False"
    if any(call.inner_hooks for call in fitting):
        text += "; hooks on parts of the model then run at the capture only"
    if profile.environment.world_size > 1:
        text += "; before DDP wraps the model, and with num_warmup_iters=11"
    return text


def refused(profile: Profile) -> bool:
    """Whether it takes none of the step's models; False where that is not known."""
    calls = profile.facts.model_calls or ()
    return bool(calls) and all(_reasons(profile, call) for call in calls)


def samples(profile: Profile) -> str:
    """The sample arguments, one for each that the model is called with."""
    calls = profile.facts.model_calls or ()
    counts = {call.arguments for call in calls if not _reasons(profile, call)}
    count = counts.pop() if len(counts) == 1 else 1
    if count == 1:
        return "(sample,)"
    return f"({', '.join(f'sample_{number}' for number in range(1, count + 1))})"


def _reasons(profile: Profile, call: ModelCall) -> list[str]:
    """What of the call stands against it, each as the end of a sentence about the model."""
    found = []
    if call.keywords:
        names = listed([f"`{name}`" for name in call.keywords])
        found.append(f"is called with {names} by keyword, and it takes arguments by position only")
    if call.others:
        found.append(f"is called with {_classes(call.others)}, and it takes tensors only")
    if call.outputs:
        found.append(f"returns {_classes(call.outputs)}, and it hands on tensors only")
    if call.hooks:
        found.append("has hooks, which may be registered only after it is made")
    if call.trained_buffers:
        found.append("has buffers that require gradients")
    if _called_before_backward(profile, call):
        found.append(
            "is called again before the backward of its first call, and overwrites what that needs"
        )
    return found


def _classes(names: tuple[str, ...]) -> str:
    return listed(["None" if name == "NoneType" else f"values of type {name}" for name in names])


def _called_before_backward(profile: Profile, call: ModelCall) -> bool:
    """Whether the gradients of an earlier call are still to come when it is called again."""
    step = profile.step
    if step is None or call.times < 2 or step.scope == "forward":
        return False
    waiting = 0
    for event, name in zip(step.period, step.names):
        if event == "backward":
            waiting = 0
        elif event == "forward" and name == call.module:
            waiting += 1
            if waiting > 1:
                return True
    return False
