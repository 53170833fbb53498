"""# The result of the replay differs from eager

## What it finds
A replay whose parameter updates differ from the eager ones by more than 0.1 %, and by more than
ten times what two replays of one batch differ. All start from the same state, with the same batch.

## Why it matters
A capture freezes Python values (a learning rate, a branch): training goes wrong without an error.

## Example
SGD with ExponentialLR: the updates differ by 59 % after one step of decay.

## Before
    scale = 1.0
    with torch.cuda.graph(graph):
        loss = F.mse_loss(model(static_x), static_y) * scale  # the capture freezes 1.0
    scale *= 0.5
    graph.replay()

## After
    scale = torch.ones((), device="cuda")
    with torch.cuda.graph(graph):
        loss = F.mse_loss(model(static_x), static_y) * scale
    scale.mul_(0.5)
    graph.replay()

## When it does not apply
A step that writes no state (inference) is compared by its outputs, or not at all (LS034).

## Reference
- [PyTorch, CUDA semantics: constraints of CUDA Graphs](https://docs.pytorch.org/docs/stable/notes/cuda.html#constraints)
- `replay.correct` in the Profile.
"""

from __future__ import annotations

from launchscope.model import Cause, Profile
from launchscope.reason_text import cause_text, reason_text
from launchscope.rules.findings.ls035_live_scheduler import remedy
from launchscope.rules.rule import Findings, rule
from launchscope.wording import pct, plural

_ADVICE = {
    "hyperparameter": "Keep it in a tensor on the GPU if the optimizer takes one. Otherwise "
    "capture again when it changes.",
    "scalar": "Keep the value in one tensor on the GPU, and write it with fill_() before each "
    "replay.",
    "branch": "Make every step take the same path (torch.where in place of if), or capture one "
    "graph for each path and choose between them outside.",
    "cross_step_state": "Update it in place inside the step (state.copy_(new)), so that it stays "
    "at the address that the graph reads. You can also copy it there before each replay.",
    "unjoined_stream": "Fork the side stream inside the step "
    "(side.wait_stream(torch.cuda.current_stream())) and join it before the step ends.",
}
# Ops that take a part of a tensor at an index from Python: one that changes picks the batch.
_PICKING = ("aten.select", "aten.slice", "aten.narrow")
_PICKING_ADVICE = (
    "The step selects its own batch. Select it before the step, and copy it into a tensor that "
    "keeps its address."
)


@rule("LS033", __doc__, fixable=True)
def RULE(profile: Profile) -> Findings:
    correct = profile.replay.correct
    if correct.status != "different":
        return
    largest = correct.max_update_diff
    for cause in correct.distinct_causes:
        text = cause_text(cause)
        yield RULE.finding(
            "error",
            text[0].upper() + text[1:],
            _advice(cause),
            cause.where,
            max_update_diff=largest,
            steps=correct.steps,
            before=cause.before,
            after=cause.after,
        )
    floor = correct.noise_floor
    if not correct.causes:
        by = f" by up to {pct(100 * largest)} of an update" if largest else ""
        over = f" over {plural(correct.steps, 'batch')}" if correct.steps else ""
        reason = f" ({reason_text(correct.reason)})" if correct.reason else ""
        if floor:
            reason += f"; two replays of one batch differ by {pct(100 * floor)}"
        yield RULE.finding(
            "error",
            f"The result of the replay differs from eager{by}{over}{reason}",
            "Look for Python values that change from step to step (counters, temperatures, "
            "branches), for inputs that each step creates instead of copying them into the same "
            "tensor, and for work on streams of your own.",
            max_update_diff=largest,
            noise_floor=floor,
            steps=correct.steps,
        )


def _advice(cause: Cause) -> str:
    if cause.kind == "learning_rate":
        return remedy(cause.optimizer or "")
    picks = cause.kind == "scalar" and cause.op in _PICKING
    return _PICKING_ADVICE if picks else _ADVICE[cause.kind]
