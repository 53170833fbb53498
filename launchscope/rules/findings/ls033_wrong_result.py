"""# The result of the replay differs from eager

## What it finds
A replay whose parameter updates differ from eager updates by more than two eager runs differ.
Both start from the same state and use the same recorded batches.

## Why it matters
A capture freezes each Python value that it meets: a learning rate, a step counter, a
temperature, a branch. Nothing raises an error, and the training goes wrong.

## Example
SGD with ExponentialLR: each replay uses the learning rate of the capture, and the updates
differ by 59 % after one step of decay.

## When it does not apply
A step that writes no state (inference) is compared by its outputs, or not at all (LS034).

## Reference
`replay.correct` in the Profile.
"""

from __future__ import annotations

from launchscope.model import Cause, Finding, Profile
from launchscope.rules.learning_rate import remedy
from launchscope.rules.rule import Rule
from launchscope.wording import figures, plural

_ADVICE = {
    "hyperparameter": "Keep it in a tensor on the GPU where the optimizer takes one, or capture "
    "again when it changes.",
    "scalar": "Keep the value in a tensor on the GPU, made once, and write it with fill_() before "
    "each replay.",
    "branch": "Let every step take one path (torch.where in place of if), or capture one graph "
    "for each path and choose between them outside.",
    "carried": "Update it in place inside the step (state.copy_(new)), so that it stays where the "
    "graph reads it, or copy it there before each replay.",
    "stream": "Fork the side stream inside the step (side.wait_stream(torch.cuda.current_stream()))"
    " and join it before the step ends.",
}


# Ops that take a part of a tensor at a place that Python gives: with a place that changes
# they pick the batch.
_PICKING = ("aten.select", "aten.slice", "aten.narrow")
_PICKING_ADVICE = (
    "The step picks its batch itself. Pick it before the step, and copy it into a tensor that "
    "keeps its address."
)


def _advice(cause: Cause) -> str:
    if cause.kind == "learning_rate":
        return remedy(cause.optimizer or "")
    if cause.kind == "scalar" and cause.what.endswith(_PICKING):
        return _PICKING_ADVICE
    return _ADVICE[cause.kind]


def check(profile: Profile) -> list[Finding]:
    correct = profile.replay.correct
    if correct.status != "different":
        return []
    largest = correct.max_update_diff
    evidence = {"max_update_diff": largest, "steps": correct.steps}
    if not correct.causes:
        by = "" if largest is None else f" by up to {figures(100 * largest, 2)} % of an update"
        reason = f" ({correct.reason})" if correct.reason else ""
        return [
            Finding(
                code="LS033",
                severity="error",
                title=f"The replay's updates differ from eager's{by} over "
                f"{plural(correct.steps, 'batch')}{reason}",
                advice="Look for Python values that change from step to step (counters, "
                "temperatures, branches), for inputs that are created anew in each step in place "
                "of copied into, and for work on streams of your own.",
                evidence=evidence,
            )
        ]
    return [
        Finding(
            code="LS033",
            severity="error",
            title=cause.text[0].upper() + cause.text[1:],
            advice=_advice(cause),
            where=cause.where,
            evidence=evidence | {"before": cause.before, "after": cause.after},
        )
        for cause in correct.distinct_causes
    ]


RULE = Rule("LS033", check, __doc__, fixable=True)
