"""# Control flow depends on data

## What it finds
Steps of equal input shapes that run different ops, or different numbers of model calls.

## Why it matters
A replay takes the captured path for every batch. For the others the result is silently wrong.

## Example
`if loss > limit: clip(grads)` is recorded either with or without the clipping. `torch.where`
keeps both in the graph. An episode of 5 to 12 forward calls runs different ops for each length. A
solver of differential equations with an adaptive step size repeats until its time is reached.

## Before
    if loss > 1:
        loss = loss * 0.1

## After
    loss = torch.where(loss > 1, loss * 0.1, loss)

## When it does not apply
A branch on a Python value that never changes after the warm-up, such as a flag, is safe.
launchscope does not see an `if` that all inspected steps took the same way.

## Reference
- [PyTorch, CUDA semantics: constraints of CUDA Graphs](https://docs.pytorch.org/docs/stable/notes/cuda.html#constraints)
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.rule import Findings, rule
from launchscope.rules.shape_change import calls_seen
from launchscope.rules.verdict.obstacles import obstacle_of
from launchscope.wording import listed


@rule("LS011", __doc__, fixable=True)
def RULE(profile: Profile) -> Findings:
    obstacle = obstacle_of(profile, "lbfgs", "calls", "branch")
    if obstacle is None:
        return
    what = "run different ops"
    if obstacle.kind == "calls":
        what = f"call the model {listed(list(map(str, calls_seen(profile))))} times"
    yield RULE.finding(
        "warning",
        f"Steps with equal input shapes {what}: control flow depends on data or on a counter",
        f"{obstacle.fix}.",
    )
