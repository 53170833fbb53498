"""# A step that begins with its backward

## What it finds
Training in which no forward of a `torch.nn.Module` with parameters is seen: the model is a
handful of tensors, or a function of them. The step then runs from one backward to the next
event that is seen, and what its backward reads was made before it.

## Why it matters
Times are right, because such steps follow each other without a gap. A capture would be wrong:
it would hold a backward without the forward that it belongs to, and every replay would go back
through the activations of the one step in which the capture was made. No replay is made.

## Example
    loss = (a + b * x - y).pow(2).sum()
    loss.backward()                      # the first that is seen of the step
    with torch.no_grad():
        a -= 1e-3 * a.grad

## When it does not apply
Steps between `with launchscope.step():`, and scripts whose model is a module.

## Reference
PyTorch notes on CUDA semantics: CUDA graphs, whole-network capture.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.profile_queries import forward_unseen
from launchscope.rules.rule import Rule


def check(profile: Profile) -> list[Finding]:
    if not forward_unseen(profile):
        return []
    return [
        Finding(
            code="LS043",
            severity="warning",
            title="The step begins with its backward: its forward calls no torch.nn.Module "
            "that has parameters",
            advice="Put `with launchscope.step():` around the whole step, forward first, and "
            "profile again: only then can a replay be made and checked.",
            where=profile.step.source if profile.step is not None else None,
        )
    ]


RULE = Rule("LS043", "A step that begins with its backward", check, __doc__)
