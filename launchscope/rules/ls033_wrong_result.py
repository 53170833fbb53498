"""# The replay's result differs from eager's

## What it finds
Parameter updates of the replay that differ from eager's on the same recorded batches from
the same state, beyond what two eager runs differ.

## Why it matters
A capture freezes every Python value it meets: a learning rate, a step counter, a
temperature, a branch. Nothing raises an error, and training goes wrong in silence.

## Example
SGD with ExponentialLR: the captured learning rate is used for ever, and the updates differ
by 59 % after one step of decay.

## When it does not apply
Steps that write no state (inference) are compared by their outputs, or not at all (LS034).

## Reference
`replay.correct` in the Profile.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.rule import Rule
from launchscope.rules.wording import figures


def check(profile: Profile) -> list[Finding]:
    correct = profile.replay.correct
    if correct.status != "different":
        return []
    largest = correct.max_update_diff
    by = "" if largest is None else f" by up to {figures(100 * largest, 2)} % of an update"
    reason = f" ({correct.reason})" if correct.reason else ""
    return [
        Finding(
            code="LS033",
            severity="error",
            title=f"The replay's updates differ from eager's{by} over {correct.steps} "
            f"batches{reason}",
            advice="Look for Python values that change from step to step: a learning rate "
            "(make it a tensor, see LS035), counters, temperatures, branches; and for inputs "
            "that are created anew in each step in place of copied into.",
            evidence={"max_update_diff": largest, "steps": correct.steps},
        )
    ]


RULE = Rule("LS033", "The replay's result differs from eager's", check, __doc__)
