"""A step of the zoo: how it is built, and what the helpers of the families share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

__all__ = ["Family", "Step", "Workload", "inference", "optimizer_for", "training"]


@dataclass(frozen=True)
class Step:
    """One call of `run(*inputs)` is one step.

    `same_work` is a step to take the truth from where a capture of `run` records other GPU work
    than eager runs.
    """

    run: Callable[..., object]
    inputs: tuple[torch.Tensor, ...]
    same_work: Callable[..., object] | None = None


@dataclass(frozen=True)
class Workload:
    """`build(device, batch)` makes model, inputs and optimizer on the device."""

    name: str
    kind: str  # train | inference
    batch: int
    build: Callable[[torch.device, int], Step]


@dataclass(frozen=True)
class Family:
    """Workloads that need the same library (None: torch alone) and so share a process."""

    name: str
    package: str | None
    workloads: tuple[Workload, ...]


def optimizer_for(
    parameters: Iterable[nn.Parameter], device: torch.device, *, sgd: bool = False
) -> torch.optim.Optimizer:
    """SGD with momentum, or AdamW as a capture needs it. The rate is small: nothing diverges."""
    if sgd:
        return torch.optim.SGD(parameters, lr=1e-4, momentum=0.9)
    return torch.optim.AdamW(parameters, lr=1e-5, capturable=device.type == "cuda")


def training(
    loss_of: Callable[..., torch.Tensor],
    inputs: tuple[torch.Tensor, ...],
    optimizer: torch.optim.Optimizer,
    *,
    autocast: bool = False,
) -> Step:
    """The usual training step around `loss_of(*inputs)`; with `autocast` in bf16."""
    device = inputs[0].device.type

    def run(*batch: torch.Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        # The cache of casts must not outlive the step: a capture would read what it holds.
        with torch.autocast(device, torch.bfloat16, enabled=autocast, cache_enabled=False):
            loss = loss_of(*batch)
        loss.backward()
        optimizer.step()

    return Step(run, inputs)


def inference(
    model: Callable[..., Any], inputs: tuple[torch.Tensor, ...], **arguments: Any
) -> Step:
    """A forward under no_grad."""

    def run(*batch: torch.Tensor) -> Any:
        with torch.no_grad():
            return model(*batch, **arguments)

    return Step(run, inputs)
