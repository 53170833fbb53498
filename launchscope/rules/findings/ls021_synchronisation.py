"""# Synchronisation costs time

## What it finds
Synchronisations without which the iteration would be at least 5 % shorter, by the queue
simulation: the host waits for the GPU, and then the GPU for the host to refill its queue.

## Why it matters
A synchronisation inside the step stops a capture. One between steps survives it, and eats
part of what the replay gains: the host can no longer run ahead.

## Example
`total += loss.item()` after every step. Summed on the GPU and read once per epoch it costs
nothing.

## When it does not apply
A wait of the host while the GPU is busy anyway costs nothing and is not counted.

## Reference
PyTorch, Performance Tuning Guide: avoid unnecessary CPU-GPU synchronisation.
Metrics `sync_cost_ms`, `sync_wait_ms`, `syncs_per_step`.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.profile_queries import WORTH_MENDING_PCT, share_pct, wait_to_mend
from launchscope.rules.rule import Rule
from launchscope.rules.wording import ms, pct


def check(profile: Profile) -> list[Finding]:
    share, cost = share_pct(profile, "sync_cost_ms"), profile.value("sync_cost_ms")
    if share is None or cost is None or share < WORTH_MENDING_PCT:
        return []
    inside = profile.facts.inside_step_syncs or 0.0
    between = profile.facts.between_step_syncs or 0.0
    first = wait_to_mend(profile) == "synchronisation"
    line = next((b.where for b in profile.blockers if b.category == "sync" and b.where), None)
    return [
        Finding(
            code="LS021",
            severity="warning" if first else "advice",
            title=f"Synchronisation costs {ms(cost)} an iteration, {pct(share)} of it",
            advice=("Mend this before adopting a graph. " if first else "")
            + _advice(inside, between),
            where=line if inside else None,
            evidence={
                "sync_cost_ms": cost,
                "share_pct": share,
                "inside_step": inside,
                "between_steps": between,
                "calls": list(profile.facts.sync_names or ()),
            },
        )
    ]


def _advice(inside: float, between: float) -> str:
    if inside and between:
        return (
            "Read values on the host (.item(), print, copies) once every many steps; those "
            "inside the step also stop a capture."
        )
    if inside:
        return (
            "It lies inside the step, where it stops a capture as well: keep the value on the "
            "GPU and read it after the step, once every many steps."
        )
    return (
        "It lies between the steps, so a capture works but the host cannot run ahead: sum "
        "losses and metrics on the GPU and read them once every many steps."
    )


RULE = Rule("LS021", "Synchronisation costs time", check, __doc__)
