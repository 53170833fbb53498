"""# The learning rate is set during training

## What it finds
A learning-rate scheduler of an optimizer that holds its `lr` as a Python float, even if the rate
did not change while launchscope measured; and a float `param_group["lr"]` that changed meanwhile.

## Why it matters
A capture freezes the float. A short check misses it if the rate changes once per epoch.

## Example
nanoGPT sets `param_group["lr"]` in each iteration. The replays keep the rate of the capture.

## Before
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

## After
    rate = torch.tensor(1e-3, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, capturable=True)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)  # writes into the tensor

## When it does not apply
Optimizers of the Adam family with `capturable=True`, and `SGD(fused=True)`, read a tensor `lr`
on the GPU. Others read it with `.item()`, which stops the capture: leave their step eager.

## Reference
- [PyTorch, torch.optim](https://docs.pytorch.org/docs/stable/optim.html)
- Facts `scheduler_live`, `scheduler_where`.
"""

from __future__ import annotations

from launchscope.model import CAPTURE_FLAGS, Profile
from launchscope.rules.rule import Findings, rule
from launchscope.wording import flagged

_FLAGS = {known.optimizer: known.flag for known in CAPTURE_FLAGS if known.follows_rate}
_NAMED = flagged({optimizer: (flag,) for optimizer, flag in _FLAGS.items()})


def remedy(optimizer: str) -> str:
    """What to write in place of `Optimizer(params, lr=0.1)`; for a class by its bare name."""
    if optimizer not in _FLAGS:
        return (
            f"Use an optimizer that takes a tensor lr on the GPU ({_NAMED}). Otherwise capture "
            "again whenever the rate changes, if that is rare, or capture only forward and "
            "backward and leave the optimizer step eager."
        )
    return (
        f"Construct the optimizer as {optimizer}(..., lr=torch.tensor(lr, device='cuda'), "
        f"{_FLAGS[optimizer]}=True). Schedulers of torch.optim then write into the tensor, and "
        "your own code sets it with param_group['lr'].fill_(value). OneCycleLR and CyclicLR need "
        "cycle_momentum=False, because a momentum stays frozen."
    )


@rule("LS035", __doc__, fixable=True)
def RULE(profile: Profile) -> Findings:
    if profile.facts.scheduler_live:
        classes = list(profile.facts.optimizer_classes or ())
        kinds = list(dict.fromkeys(c.rsplit(".", 1)[-1] for c in classes)) or [""]
        named = [(f"{kind}: " if len(kinds) > 1 else "") + remedy(kind) for kind in kinds]
        yield RULE.finding(
            "error",
            "The learning rate is set during training, as a float: a capture freezes it",
            " ".join(named),
            profile.facts.scheduler_where,
            optimizers=classes,
        )
