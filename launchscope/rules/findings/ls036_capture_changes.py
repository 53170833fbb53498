"""# The capture needs changes to the optimizer

## What it finds
The flags that had to be set for the capture, such as `capturable=True`.

## Why it matters
Without them your own capture fails with "Attempting CUDA graph capture of step() ... but
param_groups' capturable is False". They also add small kernels to the eager step, which is
why the work is compared under the same flags and the gain against your own eager step.

## Example
`torch.optim.AdamW(params, lr=3e-4, capturable=True)`

## When it does not apply
SGD has no `capturable` and needs none, as long as its learning rate never changes (LS035).
Where a replay would not pay, there is nothing to set.

## Reference
PyTorch documentation of each optimizer: `capturable`. `replay.changes` in the Profile.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.profile_queries import gain
from launchscope.rules.rule import Rule
from launchscope.rules.wording import listed


def check(profile: Profile) -> list[Finding]:
    changes = list(profile.replay.changes)
    found = gain(profile)
    needed, expected = profile.value("break_even_steps"), profile.expected_steps
    too_late = needed is not None and expected is not None and needed > expected
    too_small = found is not None and found.removable_pct < profile.threshold_pct
    if not changes or too_small or too_late:
        return []
    return [
        Finding(
            code="LS036",
            severity="info",
            title=f"The capture was made with {listed(changes)}",
            advice="Set the same in your script where the object is constructed.",
            evidence={"changes": changes},
        )
    ]


RULE = Rule("LS036", "The capture needs changes to the optimizer", check, __doc__)
