"""# A rehearsal: no GPU, no times

## What it finds
A run without a CUDA device.

## Why it matters
What can be known without a GPU is the structure: how many device operations a step has,
whether shapes and control flow are stable, which lines stop a capture. Whether a graph pays
depends on times, and those only a GPU can tell.

## Example
A script inspected on a laptop or in CI before it goes to the cluster.

## When it does not apply
On a machine with a CUDA device.

## Reference
NVIDIA, CUDA Graph Best Practice for PyTorch: more than 50 small kernels a step make a
candidate, as a rule of thumb.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.rule import Rule
from launchscope.rules.wording import plural


def check(profile: Profile) -> list[Finding]:
    if profile.mode != "rehearsal":
        return []
    ops = profile.value("device_ops_per_step")
    counted = "" if ops is None else f"; a step has {plural(ops, 'device operation')}"
    return [
        Finding(
            code="LS041",
            severity="info",
            title=f"No CUDA device: only the structure of the step was inspected{counted}",
            advice="Run the same command on a machine with a GPU to learn whether a graph pays.",
            evidence={"device_ops_per_step": ops},
        )
    ]


RULE = Rule("LS041", "A rehearsal: no GPU, no times", check, __doc__)
