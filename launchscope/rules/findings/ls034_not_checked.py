"""# The result of the replay was not checked

## What it finds
A measured replay whose result was not compared with the eager result, with the reason.

## Why it matters
A capture can succeed and still compute something else: you have to check the result yourself.

## Example
There was no memory for a second copy of the state, or you passed `--verify 0`.

## When it does not apply
If no replay was measured, there is no result to check.

## Reference
- [NVIDIA, Numerical Errors](https://docs.nvidia.com/dl-cuda-graph/troubleshooting/numerical-errors.html)
  of a CUDA graph
- `replay.correct` in the Profile.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.reason_text import reason_text
from launchscope.rules.rule import Findings, rule


@rule("LS034", __doc__)
def RULE(profile: Profile) -> Findings:
    correct = profile.replay.correct
    if profile.replay.status == "measured" and correct.status == "not_checked":
        why = f": {reason_text(correct.reason)}" if correct.reason else ""
        yield RULE.finding(
            "advice",
            f"The result of the replay was not checked{why}",
            "Before you rely on the graph, compare the losses of the first hundred steps with "
            "eager, from the same seed.",
            reason=correct.reason and correct.reason.code,
        )
