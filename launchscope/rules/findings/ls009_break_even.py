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

from launchscope.model import Finding, Profile
from launchscope.rules.rule import Rule
from launchscope.wording import plural


def check(profile: Profile) -> list[Finding]:
    needed, expected = profile.value("break_even_steps"), profile.expected_steps
    if needed is None or expected is None or needed <= expected:
        return []
    return [
        Finding(
            code="LS009",
            severity="warning",
            title=f"The capture pays back after {plural(ceil(needed), 'step')}, "
            f"and you expect {expected:,}",
            advice="Stay eager for runs this short, or use one capture for several runs in one "
            "process.",
            evidence={
                "break_even_steps": needed,
                "expected_steps": expected,
                "capture_ms": profile.value("capture_ms"),
                "instantiate_ms": profile.value("instantiate_ms"),
            },
        )
    ]


RULE = Rule("LS009", check, __doc__)
