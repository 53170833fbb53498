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

from launchscope.model import Profile, ReasonCode, ReplayStatus
from launchscope.reason_text import reason_text
from launchscope.rules.rule import Findings, Rule
from launchscope.rules.verdict.obstacles import obstacles
from launchscope.wording import listed

# Of a replay that failed or was skipped.
_BY_REASON: dict[ReasonCode, str] = {
    "out_of_memory": "The eager figures are valid. Use --verify 0 or a smaller batch, so that the "
    "capture needs less memory beside the eager step.",
    "cuda_error": "The eager figures are valid. The error comes from the GPU: run the script alone "
    "with CUDA_LAUNCH_BLOCKING=1 to find the line, and check that the step reads its inputs only "
    "from tensors that keep their address.",
    "time_limit": "The eager figures are valid. Raise --timeout, or lower --timing and --replay.",
    "legacy_stream": "Fix what LS038 names and profile again: a capture cannot contain it.",
    "already_graphed": "There is nothing to do: the step already replays graphs.",
    "script_ended": "Let the script run for more steps, or lower --warmup, --timing and --replay.",
    "trace_only": "Profile the script itself to measure a replay: launchscope profile train.py.",
    "not_run": "Profile with --replay 30 to measure a replay.",
}
_ADVICE: dict[ReplayStatus, str] = {
    "blocked": "Fix the lines that LS030 names and profile again.",
    "failed": "The eager figures are valid. Fix the cause and profile again.",
    "skipped": "Fix the cause and profile again.",
    "what_if": "Fix the blocking lines, which recorded results replaced in this replay, and "
    "profile again to confirm it.",
}
_TITLES: dict[ReplayStatus, str] = {
    "blocked": "The step cannot be captured as it stands",
    "failed": "The capture or its replay failed",
    "skipped": "No replay was measured",
    "what_if": "The replay was measured without the blocking operations",
}
_FIXES = {
    "growth": "keep the inputs that grow at one size (LS010)",
    "lbfgs": "leave the step of LBFGS eager (LS011)",
    "branch": "replace the branch that depends on data (LS011)",
    "calls": "call the model equally often in every step (LS011)",
    "padding": "pad the inputs to a few sizes (LS010)",
    "blockers": "fix the lines that LS030 names",
}


def check(profile: Profile) -> Findings:
    replay = profile.replay
    if profile.mode == "rehearsal" or replay.status == "measured":
        return
    reason = replay.reason
    why = "" if reason is None else f": {reason_text(reason)}"
    yield RULE.finding(
        "warning" if replay.status == "failed" else "info",
        f"{_TITLES[replay.status]}{why}",
        _advice(profile),
        replay.where,
        status=replay.status,
        reason=None if reason is None else reason.code,
    )


def _advice(profile: Profile) -> str:
    status, reason = profile.replay.status, profile.replay.reason
    code = None if reason is None else reason.code
    if code in ("ops_change", "ops_change_beside_blockers"):
        known = [_FIXES[o.kind] for o in obstacles(profile) if o.kind in _FIXES]
        fixes = listed(known) or "make every step run the same ops"
        return f"A graph holds one sequence of ops: {fixes}, and profile again."
    if code is not None and status in ("failed", "skipped"):
        return _BY_REASON.get(code, _ADVICE[status])
    return _ADVICE[status]


RULE = Rule("LS031", check, __doc__, fixable=True)
