"""# The result of the replay was not checked

## What it finds
A measured replay whose result was not compared with the eager result, with the reason.

## Why it matters
A capture can succeed and still compute something else. The gain is measured, but you have to
check the result yourself.

## Example
There was no memory for a second copy of the state, the check ran out of time, or you passed
`--verify 0`.

## When it does not apply
If no replay was measured, there is no result to check.

## Reference
`replay.correct` in the Profile.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.reason_text import reason_text
from launchscope.rules.rule import Findings, Rule


def check(profile: Profile) -> Findings:
    correct = profile.replay.correct
    if profile.replay.status == "measured" and correct.status == "not_checked":
        reason = f": {reason_text(correct.reason)}" if correct.reason else ""
        yield RULE.finding(
            "advice",
            f"The result of the replay was not checked{reason}",
            "Before you rely on the graph, compare the losses of the first hundred steps with "
            "eager, from the same seed.",
            reason=correct.reason and correct.reason.code,
        )


RULE = Rule("LS034", check, __doc__)
