"""# The step begins with its backward

## What it finds
Training in which launchscope sees no forward of a `torch.nn.Module` with parameters, because
the model is a few tensors or a function of them. The step then begins at the backward, and the
forward that belongs to it lies outside.

## Why it matters
The times are right, because such steps follow each other without a gap. A capture would be
wrong: it would contain a backward without its forward, and each replay would read the
activations of the captured step. launchscope makes no replay.

## Example
    loss = (a + b * x - y).pow(2).sum()
    loss.backward()                      # the first event of the step that launchscope sees
    with torch.no_grad():
        a -= 1e-3 * a.grad

## When it does not apply
If you mark the steps with `with launchscope.step():`, or if the model is a module.

## Reference
PyTorch, CUDA semantics: CUDA Graphs, whole-network capture.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.profile_queries import forward_unseen
from launchscope.rules.rule import Findings, Rule


def check(profile: Profile) -> Findings:
    if forward_unseen(profile):
        yield RULE.finding(
            "warning",
            "The step begins with its backward: no forward of a torch.nn.Module with parameters "
            "belongs to it",
            "Put `with launchscope.step():` around the whole step, forward included, and profile "
            "again. launchscope can then measure and check a replay.",
            profile.step.source if profile.step is not None else None,
        )


RULE = Rule("LS043", check, __doc__, fixable=True)
