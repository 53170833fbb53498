"""# No replay was measured

## What it finds
A replay that was blocked, failed or was left out, with the reason. Also a replay that was
measured with recorded results in place of the blocking operations (`what_if`).

## Why it matters
The gain is then a prediction, or what you get once you have fixed the blocking lines.

## Example
`blocked`: a line reads the loss. `failed`: out of memory. `skipped`: you passed `--replay 0`.

## Before
    loss.backward()
    history.append(loss.item())  # inside the step: it cannot be captured
    optimizer.step()

## After
    loss.backward()
    optimizer.step()
    history.append(loss.detach().clone())  # after the step, and read at the end

## When it does not apply
A rehearsal has no GPU to replay on (LS041).

## Reference
- [NVIDIA, Capture Failures](https://docs.nvidia.com/dl-cuda-graph/troubleshooting/capture-failures.html)
- `replay.status` and `replay.reason` in the Profile.
"""

from __future__ import annotations

from launchscope.model import Profile, ReasonCode, ReplayStatus
from launchscope.reason_text import reason_text
from launchscope.rules.profile_queries import runs_torch
from launchscope.rules.rule import Findings, rule
from launchscope.rules.verdict.obstacles import clauses, obstacles

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
    "what_if": "Fix the blocking lines and profile again to confirm the gain.",
}
_TITLES: dict[ReplayStatus, str] = {
    "blocked": "The step cannot be captured yet",
    "failed": "The capture or its replay failed",
    "skipped": "No replay was measured",
    "what_if": "The replay was measured without the blocking operations",
}


@rule("LS031", __doc__, fixable=True)
def RULE(profile: Profile) -> Findings:
    replay = profile.replay
    measured = replay.status == "measured" or (
        replay.status != "what_if" and (replay.shapes or replay.padded)
    )
    if profile.mode == "rehearsal" or measured:
        return
    reason = replay.reason
    why = "" if reason is None else f": {reason_text(reason)}"
    yield RULE.finding(
        "warning" if replay.status == "failed" else "info",
        f"{_TITLES[replay.status]}{why}",
        _advice(profile),
        replay.where,
        status=replay.status,
        reason=reason and reason.code,
    )


def _advice(profile: Profile) -> str:
    status, reason = profile.replay.status, profile.replay.reason
    if reason is None:
        return _ADVICE[status]
    if reason.code in ("ops_change", "ops_change_beside_blockers"):
        once = clauses(obstacles(profile)) or "every step runs the same ops"
        return f"A graph holds one sequence of ops. Profile again once {once}."
    if reason.code == "trace_only" and not runs_torch(profile):
        return ""
    blocked = status not in ("failed", "skipped")
    return _ADVICE[status] if blocked else _BY_REASON.get(reason.code, _ADVICE[status])
