"""# A learning-rate scheduler changes a float learning rate

## What it finds
A learning rate that changes during the run while the optimizer holds its `lr` as a Python
float.

## Why it matters
A capture freezes the float. A scheduler that steps once per epoch changes nothing during a
short check, so a check that passes proves nothing here.

## Example
nanoGPT sets `param_group["lr"]` in each iteration. The replays keep the learning rate of the
capture.

## When it does not apply
Optimizers of the Adam family with `capturable=True` and a tensor `lr`, and `SGD(fused=True)`
with a tensor `lr`, read the rate on the GPU. Other optimizers read a tensor `lr` with
`.item()`, which stops the capture: leave their step out of the graph.

## Reference
PyTorch documentation of each optimizer: `capturable`, tensor `lr`. Facts `scheduler_live`,
`scheduler_where`.
"""

from __future__ import annotations

from launchscope.model import Profile
from launchscope.rules.learning_rate import remedy
from launchscope.rules.rule import Findings, Rule


def scheduler_is_frozen(profile: Profile) -> bool:
    """Whether a capture would freeze a rate that changes; a rate in a tensor is not one."""
    return profile.facts.scheduler_live is True


def check(profile: Profile) -> Findings:
    if not scheduler_is_frozen(profile):
        return
    classes = list(profile.facts.optimizer_classes or ())
    kinds = list(dict.fromkeys(c.rsplit(".", 1)[-1] for c in classes)) or [""]
    named = [(f"{kind}: " if len(kinds) > 1 else "") + remedy(kind) for kind in kinds]
    yield RULE.finding(
        "error",
        "A scheduler changes the learning rate, which is a float: a capture freezes it",
        " ".join(named),
        profile.facts.scheduler_where,
        optimizers=classes,
    )


RULE = Rule("LS035", check, __doc__, fixable=True)
