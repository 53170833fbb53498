"""# The step begins with its backward

## What it finds
Training in which launchscope sees no forward of a `torch.nn.Module` with parameters, because
the model is a few tensors or a function of them. The step then begins at the backward.

## Why it matters
The times are right, because such steps follow each other without a gap. launchscope makes no
replay: without its forward, each replay of the backward would read the captured activations.

## Example
A line is fitted to points: its two parameters are tensors of the script.

## Before
    loss = (a + b * x - y).pow(2).sum()
    loss.backward()  # the first event of the step that launchscope sees
    with torch.no_grad():
        a -= 1e-3 * a.grad

## After
    with launchscope.step():
        loss = (a + b * x - y).pow(2).sum()
        loss.backward()
        with torch.no_grad():
            a -= 1e-3 * a.grad

## When it does not apply
If you mark the steps with `with launchscope.step():`, or if the model is a module.

## Reference
- [PyTorch, CUDA semantics: whole-network capture](https://docs.pytorch.org/docs/stable/notes/cuda.html#whole-network-capture)
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.rule import Findings, rule
from launchscope.rules.verdict.obstacles import obstacle_of


@rule("LS043", __doc__, fixable=True)
def RULE(profile: Profile) -> Findings:
    obstacle = obstacle_of(profile, "LS043")
    if obstacle is not None:
        yield RULE.finding(
            "warning",
            "The step begins with its backward: no forward of a torch.nn.Module with parameters "
            "belongs to it",
            f"{obstacle.fix}. launchscope can then measure and check a replay.",
            profile.step.source if profile.step else None,
        )
