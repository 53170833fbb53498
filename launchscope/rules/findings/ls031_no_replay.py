"""# No replay was measured

## What it finds
A replay that was blocked, failed or was left out, with the reason. Also a replay that was
measured with recorded results in place of the blocking operations (`what_if`).

## Why it matters
The gain is then a prediction from the trace, or an estimate of what you get once you have
fixed the blocking lines.

## Example
`blocked`: train.py:52 reads the loss on the host. `failed`: CUDA runs out of memory during
the capture. `skipped`: you passed `--replay 0`.

## When it does not apply
A rehearsal has no GPU to replay on (LS041).

## Reference
`replay.status` and `replay.reason` in the Profile.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.rule import Rule
from launchscope.rules.verdict.obstacles import obstacles
from launchscope.wording import listed

# What the reason says, in lower case, and what to do then; the first that fits.
_BY_REASON: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("out of memory", "outofmemory"),
        "The eager figures stand. --verify 0 and a smaller batch lower the memory that a capture "
        "needs beside eager's.",
    ),
    (
        ("device-side assert", "cuda error", "acceleratorerror", "illegal memory access"),
        "The eager figures stand. The error is one of the GPU: run the script by itself with "
        "CUDA_LAUNCH_BLOCKING=1 to find the line, and check that the step reads its inputs only "
        "from tensors that stay where they are.",
    ),
    (
        ("time limit",),
        "The eager figures stand. Raise --timeout, or lower --timing and --replay.",
    ),
    (
        ("legacy default stream",),
        "Nothing there can be captured: fix what LS038 names and profile again.",
    ),
    (
        ("already replays cuda graphs",),
        "Nothing is to be done: the step replays graphs of its own.",
    ),
    (
        ("script ended before",),
        "Give the script more steps, or lower --warmup, --timing and --replay.",
    ),
    (
        ("a trace holds no replay",),
        "To measure one, profile the script itself: launchscope profile train.py.",
    ),
    (
        ("not run", "--replay 0"),
        "It was not asked for, or not reached: profile with --replay 30 to measure it.",
    ),
)
_CHANGING = "op stream changes"
_ADVICE = {
    "blocked": "Fix the lines named by LS030 and profile again.",
    "failed": "The eager figures stand. Fix the cause and profile again.",
    "skipped": "Profile again once the reason is gone.",
    "what_if": "The replay ran with recorded values in place of the blocking lines; fix them "
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
            advice=_advice(profile),
            where=replay.where,
            evidence={"status": replay.status, "reason": replay.reason},
        )
    ]


def _advice(profile: Profile) -> str:
    replay = profile.replay
    reason = (replay.reason or "").lower()
    if _CHANGING in reason:
        how = {
            "growth": "keep the inputs that grow at one size (LS010)",
            "lbfgs": "leave the step of LBFGS eager (LS011)",
            "branch": "replace the branch that depends on data (LS011)",
            "calls": "call the model equally often in every step (LS011)",
            "padding": "pad the inputs to a few sizes (LS010)",
            "blockers": "fix the lines named by LS030",
        }
        known = [how[o.kind] for o in obstacles(profile) if o.kind in how]
        steps = listed(known) or "make the ops of every step the same"
        return f"One graph holds one course of ops: {steps}, and profile again."
    if replay.status in ("failed", "skipped"):
        for parts, advice in _BY_REASON:
            if any(part in reason for part in parts):
                return advice
    return _ADVICE[replay.status]


RULE = Rule("LS031", check, __doc__, fixable=True)
