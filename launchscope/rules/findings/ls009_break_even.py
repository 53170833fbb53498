"""# Too few replays to pay back the capture

## What it finds
More steps needed to pay back capture and instantiation than you expect to run.

## Why it matters
Capture costs once, the saving comes per step: the break-even is capture cost / saving.

## Example
A capture of 900 ms that saves 1 ms a step pays back after 900 steps; with
`--expected-steps 500` it never does.

## When it does not apply
Without `--expected-steps` the break-even is told with the costs, and nothing is decided on
it.

## Reference
Metrics `break_even_steps`, `capture_ms`, `instantiate_ms`.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.rule import Rule
from launchscope.rules.wording import plural


def check(profile: Profile) -> list[Finding]:
    needed, expected = profile.value("break_even_steps"), profile.expected_steps
    if needed is None or expected is None or needed <= expected:
        return []
    return [
        Finding(
            code="LS009",
            severity="warning",
            title=f"The capture pays back after {plural(round(needed), 'step')}, "
            f"and you expect {expected:,}",
            advice="Stay eager for runs this short, or share one capture over several runs in "
            "one process.",
            evidence={
                "break_even_steps": needed,
                "expected_steps": expected,
                "capture_ms": profile.value("capture_ms"),
                "instantiate_ms": profile.value("instantiate_ms"),
            },
        )
    ]


RULE = Rule("LS009", "Too few replays to pay back the capture", check, __doc__)
