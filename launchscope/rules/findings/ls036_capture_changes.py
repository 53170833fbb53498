"""# The capture needs changes to the optimizer

## What it finds
The optimizer flags that launchscope set for the capture, such as `capturable=True`.

## Why it matters
Without them your own capture fails with "Attempting CUDA graph capture of step() ... but
param_groups' capturable is False". They add small kernels, so launchscope compares the GPU work
under the same flags, and the gain with your own eager step.

## Example
AdamW counts its steps on the CPU unless it is constructed for a capture.

## When it does not apply
SGD with a constant learning rate needs no flag (LS035), nor does a replay that does not pay.

## Reference
- [PyTorch, torch.optim](https://docs.pytorch.org/docs/stable/optim.html)
- `replay.changes` in the Profile.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.profile_queries import gain, never_pays_back
from launchscope.rules.rule import Findings, rule
from launchscope.wording import listed


@rule("LS036", __doc__)
def RULE(profile: Profile) -> Findings:
    changes, found = list(map(str, profile.replay.changes)), gain(profile)
    pays = (found is None or found.pays) and never_pays_back(profile) is None
    if changes and pays:
        yield RULE.finding(
            "info",
            f"The capture needed {listed(changes)}",
            "Make the same change where your script constructs the optimizer.",
            changes=changes,
        )
