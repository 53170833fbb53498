"""# The capture needs changes to the optimizer

## What it finds
The optimizer flags that launchscope set for the capture, such as `capturable=True`.

## Why it matters
Without them your own capture fails with "Attempting CUDA graph capture of step() ... but
param_groups' capturable is False". They also add small kernels to the eager step. launchscope
therefore compares the GPU work under the same flags, and the gain with your own eager step.

## Example
`torch.optim.AdamW(params, lr=3e-4, capturable=True)`

## When it does not apply
SGD has no `capturable` flag and needs none, as long as its learning rate does not change
(LS035). If a replay does not reach your threshold, there is nothing to set.

## Reference
PyTorch documentation of each optimizer: `capturable`. `replay.changes` in the Profile.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.profile_queries import gain, never_pays_back
from launchscope.rules.rule import Findings, Rule
from launchscope.wording import listed


def check(profile: Profile) -> Findings:
    changes, found = list(map(str, profile.replay.changes)), gain(profile)
    too_small = found is not None and found.removable_pct < profile.threshold_pct
    if changes and not too_small and never_pays_back(profile) is None:
        yield RULE.finding(
            "info",
            f"The capture needed {listed(changes)}",
            "Set the same where your script constructs the optimizer.",
            changes=changes,
        )


RULE = Rule("LS036", check, __doc__)
