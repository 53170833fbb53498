"""# Some measurements are missing

## What it finds
Passes that gave no result, and a timing pass that ended before ten steps.

## Why it matters
The report marks what was not measured as "not measured", and never as zero.

## Example
A script of 14 steps: ten for the warm-up, four timed.

## When it does not apply
A pass that you left out with 0 is not missing.

## Reference
- [PyTorch, torch.utils.benchmark](https://docs.pytorch.org/docs/stable/benchmark_utils.html):
  why one timing is not enough.
- `notes` in the Profile; facts `timing_steps`, `has_pass_failures`.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.rule import Findings, rule
from launchscope.wording import plural


def few_steps_timed(profile: Profile) -> bool:
    return 0 < (profile.facts.timing_steps or 0) < 10


@rule("LS040", __doc__)
def RULE(profile: Profile) -> Findings:
    steps = profile.facts.timing_steps or 0
    if few_steps_timed(profile):
        yield RULE.finding(
            "warning",
            f"Only {plural(steps, 'step')} could be timed",
            "Give the script more steps or lower --warmup.",
            timing_steps=steps,
        )
    if profile.facts.has_pass_failures is True:
        yield RULE.finding(
            "warning",
            "A pass gave no result",
            "The notes name the pass and the reason: fix it and profile again. The results of the "
            "other passes are valid.",
            has_pass_failures=True,
        )
