"""# A learning-rate scheduler with a float learning rate

## What it finds
A learning-rate scheduler at work while the optimizer holds its `lr` as a Python float.

## Why it matters
The float is frozen into the graph at capture. A scheduler that steps once an epoch changes
nothing during a short check, so a passed check proves nothing here.

## Example
nanoGPT as shipped sets `param_group["lr"]` each iteration: the replay goes on with the
learning rate of the capture.

## When it does not apply
Adam-family optimizers with `capturable=True` and a tensor `lr`; `SGD(fused=True)` with a
tensor `lr`. Other optimizers read a tensor `lr` with `.item()`, which stops the capture:
leave their step out of the graph.

## Reference
PyTorch documentation of each optimizer: `capturable`, tensor `lr`.
"""

from __future__ import annotations

from launchscope.model import Finding, Profile
from launchscope.rules.reading import flag, text
from launchscope.rules.rule import Rule

_ADAM_FAMILY = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adadelta", "ASGD")


def scheduler_is_frozen(profile: Profile) -> bool:
    """Whether a live scheduler's rate would be frozen: it is, unless the replay used a tensor."""
    as_tensor = any("lr" in change and "tensor" in change for change in profile.replay.changes)
    return flag(profile, "scheduler_live") and not as_tensor


def check(profile: Profile) -> list[Finding]:
    if not scheduler_is_frozen(profile):
        return []
    classes = [str(c) for c in profile.facts.get("optimizer_classes") or []]
    where = text(profile, "scheduler_where")
    return [
        Finding(
            code="LS035",
            severity="error",
            title="A learning-rate scheduler is at work and the learning rate is a float: "
            "a capture freezes it",
            advice=_advice(classes),
            where=where,
            evidence={"optimizers": classes},
        )
    ]


def _advice(classes: list[str]) -> str:
    first = classes[0].rsplit(".", 1)[-1] if classes else ""
    if first in _ADAM_FAMILY:
        return (
            f"Construct it as {first}(..., lr=torch.tensor(lr, device='cuda'), capturable=True); "
            "schedulers of torch.optim then write into the tensor, and code of your own sets it "
            "with param_group['lr'].fill_(value)."
        )
    if first == "SGD":
        return (
            "Construct it as SGD(..., lr=torch.tensor(lr, device='cuda'), fused=True) and set "
            "the rate with param_group['lr'].fill_(value); plain SGD reads a tensor lr on the "
            "host, which stops the capture."
        )
    return (
        "Use an optimizer that takes a tensor lr on the GPU (Adam family with capturable=True, "
        "SGD with fused=True), or capture forward and backward only and leave the optimizer "
        "step eager."
    )


RULE = Rule("LS035", "A learning-rate scheduler with a float learning rate", check, __doc__)
