"""# The run is too short to pay back the capture

## What it finds
A capture that pays back only after more steps than you expect to run.

## Why it matters
You pay for the capture once: its cost divided by what each replay saves is the break-even.

## Example
A capture of 900 ms that saves 1 ms per step costs more than it saves with `--expected-steps 500`.

## When it does not apply
Without `--expected-steps` the verdict does not use the break-even.

## Reference
- [PyTorch, CUDAGraph](https://docs.pytorch.org/docs/stable/generated/torch.cuda.CUDAGraph.html):
  capture, instantiation and replay are separate steps.
- Metrics `break_even_steps`, `capture_ms`, `instantiate_ms`.
"""

from __future__ import annotations

from math import ceil

from launchscope.model import Profile
from launchscope.rules.profile_queries import never_pays_back
from launchscope.rules.rule import Findings, rule
from launchscope.wording import plural


@rule("LS009", __doc__)
def RULE(profile: Profile) -> Findings:
    if (late := never_pays_back(profile)) is not None:
        needed, expected = late
        yield RULE.finding(
            "warning",
            f"The capture pays back after {plural(ceil(needed), 'step')}, and you expect "
            f"{expected:,}",
            "Stay eager for runs this short, or use one capture for several runs in one process.",
            expected_steps=expected,
            **profile.values("break_even_steps", "capture_ms", "instantiate_ms"),
        )
