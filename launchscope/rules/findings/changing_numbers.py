"""# A rate or a number that changes during training

## What it finds
- A learning-rate scheduler of an optimizer that holds its `lr` as a Python float, even if the rate
  did not change while launchscope measured; and a float `param_group["lr"]` that changed meanwhile.
- A number that made the result of the replay differ from eager: a rate, another hyperparameter of
  the optimizer, or a Python number in the step's arithmetic.

## Why it matters
A capture freezes the number: each replay uses the one of the captured step, and training goes wrong
without an error. A short check misses a rate that changes once per epoch.

## Example
nanoGPT sets `param_group["lr"]` in each iteration. The replays keep the rate of the capture: with
SGD and ExponentialLR the updates differ by 59 % after one step of decay.

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
- Facts `scheduler_live`, `scheduler_where`; `replay.correct` in the Profile.
"""

from __future__ import annotations

from launchscope.model import CAPTURE_FLAGS, Cause, Profile
from launchscope.rules.findings.wrong_result import NUMBERS, finding_of
from launchscope.rules.rule import Findings, rule
from launchscope.wording import flagged

_FLAGS = {known.optimizer: known.flag for known in CAPTURE_FLAGS if known.follows_rate}
_NAMED = flagged({optimizer: (flag,) for optimizer, flag in _FLAGS.items()})
# Ops that take a part of a tensor at an index from Python: one that changes picks the batch.
_PICKING = ("aten.select", "aten.slice", "aten.narrow")


@rule("LS035", __doc__, fixable=True)
def RULE(profile: Profile) -> Findings:
    correct = profile.replay.correct
    for cause in correct.distinct_causes:
        if cause.kind in NUMBERS:
            yield finding_of(RULE, cause, _advice(cause))
    known = any(cause.kind == "learning_rate" for cause in correct.causes)
    if profile.facts.scheduler_live and not known:
        classes = list(profile.facts.optimizer_classes or ())
        kinds = list(dict.fromkeys(c.rsplit(".", 1)[-1] for c in classes)) or [""]
        named = [(f"{kind}: " if len(kinds) > 1 else "") + remedy(kind) for kind in kinds]
        yield RULE.finding(
            "error",
            "The learning rate is set during training, as a float: a capture freezes it",
            " ".join(named),
            profile.facts.scheduler_where,
        )


def _advice(cause: Cause) -> str:
    if cause.kind == "learning_rate":
        return remedy(cause.optimizer or "")
    if cause.kind == "hyperparameter":
        return (
            "Keep it in a tensor on the GPU if the optimizer takes one. Otherwise capture again "
            "when it changes."
        )
    if cause.op in _PICKING:
        return (
            "The step selects its own batch. Select it before the step, and copy it into a tensor "
            "that keeps its address."
        )
    return "Keep the value in one tensor on the GPU, and write it with fill_() before each replay."


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
