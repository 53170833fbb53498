"""# The replay was not measured

## What it finds
A replay that was blocked, failed or was left out, with the reason; and one measured with the
results of blocking operations put in for them (`what_if`).

## Why it matters
What a replay gives is then a prediction from the trace, or a measurement of the step with
its blockers stubbed: an estimate of what mending these lines would give.

## Example
`blocked`: train.py:52 reads the loss on the host. `failed`: CUDA out of memory during the
capture. `skipped`: `--replay 0`.

## When it does not apply
In a rehearsal, where there is no GPU to replay on (LS041).

## Reference
`replay.status` and `replay.reason` in the Profile.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.rule import Rule

_ADVICE = {
    "blocked": "Mend the lines named by LS030 and profile again.",
    "failed": "The eager figures stand. Mend the cause and profile again; --verify 0 and a "
    "smaller batch lower the memory a capture needs.",
    "skipped": "Profile with the replay pass to measure it.",
    "what_if": "The replay ran with recorded values in place of the blocking lines; mend them "
    "and profile again to confirm it.",
}
_SAID = {
    "blocked": "The step cannot be captured as it stands",
    "failed": "The capture or its replay failed",
    "skipped": "No replay was measured",
    "what_if": "The replay was measured with its blockers stubbed",
}


def check(profile: Profile) -> list[Finding]:
    replay = profile.replay
    if profile.mode == "rehearsal" or replay.status == "measured":
        return []
    reason = f": {replay.reason}" if replay.reason else ""
    return [
        Finding(
            code="LS031",
            severity="warning" if replay.status == "failed" else "info",
            title=f"{_SAID[replay.status]}{reason}",
            advice=_ADVICE[replay.status],
            where=replay.where,
            evidence={"status": replay.status, "reason": replay.reason},
        )
    ]


RULE = Rule("LS031", "The replay was not measured", check, __doc__)
