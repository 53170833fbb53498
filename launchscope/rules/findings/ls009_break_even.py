"""# The run is too short to pay back the capture

## What it finds
A capture that pays back only after more steps than you expect to run.

## Why it matters
You pay for the capture once and save time in each step. The break-even is the cost of capture
and instantiation divided by the time that one replay saves.

## Example
A capture of 900 ms that saves 1 ms per step pays back after 900 steps. With
`--expected-steps 500` it costs more than it saves.

## When it does not apply
Without `--expected-steps` the report shows the break-even with the costs, and the verdict does
not use it.

## Reference
Metrics `break_even_steps`, `capture_ms`, `instantiate_ms`.
"""

from __future__ import annotations

from math import ceil

from launchscope.model import Profile
from launchscope.rules.profile_queries import never_pays_back
from launchscope.rules.rule import Findings, Rule
from launchscope.wording import plural


def check(profile: Profile) -> Findings:
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


RULE = Rule("LS009", check, __doc__)
