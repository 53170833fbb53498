"""# Some measurements are missing

## What it finds
Passes that gave no result, and a timing pass of fewer than ten steps because the script ended,
was interrupted or reached its time limit.

## Why it matters
The report shows what was measured. It marks the rest as "not measured" and never as zero.

## Example
A script of 14 steps: ten for the warm-up, four timed.

## When it does not apply
A pass that you left out with 0 is not missing.

## Reference
`notes` in the Profile; facts `timing_steps`, `has_pass_failures`.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.rule import Findings, Rule
from launchscope.wording import plural

FEW_STEPS = 10


def is_partial(profile: Profile) -> bool:
    """Whether few steps were timed."""
    return 0 < (profile.facts.timing_steps or 0) < FEW_STEPS


def check(profile: Profile) -> Findings:
    steps = profile.facts.timing_steps or 0
    if is_partial(profile):
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


RULE = Rule("LS040", check, __doc__)
