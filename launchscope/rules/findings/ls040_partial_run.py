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

from launchscope.model import Finding, Profile
from launchscope.rules.rule import Rule
from launchscope.wording import plural

FEW_STEPS = 10


def is_partial(profile: Profile) -> bool:
    """Whether few steps were timed."""
    steps = profile.facts.timing_steps
    return steps is not None and 0 < steps < FEW_STEPS


def check(profile: Profile) -> list[Finding]:
    found = []
    steps = profile.facts.timing_steps
    if steps is not None and is_partial(profile):
        found.append(
            Finding(
                code="LS040",
                severity="warning",
                title=f"Only {plural(steps, 'step')} could be timed",
                advice="Give the script more steps or lower --warmup.",
                evidence={"timing_steps": steps},
            )
        )
    if profile.facts.has_pass_failures is True:
        found.append(
            Finding(
                code="LS040",
                severity="warning",
                title="A pass gave no result",
                advice="The notes name the pass and the reason: fix it and profile again. The "
                "results of the other passes are valid.",
                evidence={"has_pass_failures": True},
            )
        )
    return found


RULE = Rule("LS040", check, __doc__)
