"""# Synchronization costs time

## What it finds
Synchronizations that leave the GPU idle for at least 5 % of the iteration: the host waits for the
GPU, and then the GPU waits for the host to fill its queue again.

## Why it matters
A synchronization inside the step stops a capture. Between steps it keeps the host from running
ahead.

## Example
`total += loss.item()` after each step. Add up the losses on the GPU and read the sum per epoch.

## Before
    total = 0.0
    for x, y in batches:
        loss = F.mse_loss(model(x), y)
        total += loss.item()  # the host waits for the GPU in each step

## After
    total = torch.zeros((), device=device)
    for x, y in batches:
        loss = F.mse_loss(model(x), y)
        total += loss.detach()
    total = total.item()  # once

## When it does not apply
If the host waits while the GPU is busy anyway, the wait costs nothing and is not counted.

## Reference
- [PyTorch, Performance Tuning Guide](https://docs.pytorch.org/tutorials/recipes/recipes/tuning_guide.html)
- Metrics `sync_wait_ms`, `syncs_per_step`.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.profile_queries import runs_torch, wait_to_fix_first, worth_fixing
from launchscope.rules.rule import Findings, rule
from launchscope.wording import place


@rule("LS021", __doc__, fixable=True)
def RULE(profile: Profile) -> Findings:
    cost = worth_fixing(profile, "sync_wait_ms")
    if cost is None:
        return
    inside = profile.value("syncs_per_step")
    first = wait_to_fix_first(profile) == "sync_wait_ms"
    waiting = (b for b in profile.blockers if b.category == "sync" and b.where) if inside else ()
    line = next(iter(waiting), None)
    library = line.library.where if line and line.library else None
    reads = ".item(), print, copies" if runs_torch(profile) else "copies"
    advice = f"Read values on the host ({reads}) only once every many steps."
    if inside:
        advice += " Inside the step such a read also stops a capture."
    if library:
        advice += f" The host waits in an installed library, at {place(library)} (LS030)."
    yield RULE.finding(
        "warning" if first else "advice",
        f"Synchronization costs {cost}",
        f"{'Fix this before you adopt a graph. ' if first else ''}{advice}",
        line.where if line else None,
        library,
    )
