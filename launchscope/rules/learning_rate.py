"""How an optimizer can read a learning rate that changes while its step is in a graph."""

from __future__ import annotations

# With capturable=True these read a tensor lr on the GPU and never on the host.
CAPTURABLE = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adadelta", "RMSprop")

_NOT_CYCLED = "OneCycleLR and CyclicLR need cycle_momentum=False, because a momentum stays frozen."


def remedy(optimizer: str) -> str:
    """What to write in place of `Optimizer(params, lr=0.1)`; for a class by its bare name."""
    if optimizer in CAPTURABLE:
        return (
            f"Construct it as {optimizer}(..., lr=torch.tensor(lr, device='cuda'), "
            "capturable=True). Schedulers of torch.optim then write into the tensor, and your own "
            f"code sets it with param_group['lr'].fill_(value). {_NOT_CYCLED}"
        )
    if optimizer == "SGD":
        return (
            "Construct it as SGD(..., lr=torch.tensor(lr, device='cuda'), fused=True) and set "
            "the rate with param_group['lr'].fill_(value). Without fused=True, SGD reads a tensor "
            f"lr on the host, which stops the capture. {_NOT_CYCLED}"
        )
    return (
        "Use an optimizer that takes a tensor lr on the GPU (the Adam family with "
        "capturable=True, SGD with fused=True). Otherwise capture again whenever the rate changes, "
        "if that is rare, or capture only forward and backward and leave the optimizer step eager."
    )
