"""# The replay's result was not checked

## What it finds
A measured replay whose result was not compared with eager's, with the reason.

## Why it matters
A successful capture can hide errors. The gain is real; that the result is right is then
yours to check.

## Example
Not enough memory for a second copy of the state, `--verify 0`, or a time-out.

## When it does not apply
Where no replay was measured there is nothing to check.

## Reference
`replay.correct` in the Profile.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.rule import Rule


def check(profile: Profile) -> list[Finding]:
    correct = profile.replay.correct
    if profile.replay.status != "measured" or correct.status != "not_checked":
        return []
    reason = f": {correct.reason}" if correct.reason else ""
    return [
        Finding(
            code="LS034",
            severity="advice",
            title=f"The replay's result was not checked against eager{reason}",
            advice="Compare the losses of the first hundred steps of both versions, same seed, "
            "before you rely on it.",
            evidence={"reason": correct.reason},
        )
    ]


RULE = Rule("LS034", "The replay's result was not checked", check, __doc__)
