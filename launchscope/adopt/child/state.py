"""The tensors that training changes, by names that are the same in two versions of a script."""

from __future__ import annotations

import weakref

from launchscope.runner.child.facts.plain_values import parameters_with_state
from launchscope.runner.child.facts.torch_types import Optimizer, Tensor, Torch


class TrainingState:
    """Parameters with their gradients and state, of the optimizers that were constructed."""

    def __init__(self, torch: Torch):
        self._torch = torch
        self._optimizers: list[weakref.ref[Optimizer]] = []

    def add_optimizer(self, optimizer: Optimizer) -> None:
        if all(known() is not optimizer for known in self._optimizers):
            self._optimizers.append(weakref.ref(optimizer))

    def optimizers(self) -> list[Optimizer]:
        return [found for known in self._optimizers if (found := known()) is not None]

    def tensors(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for number, optimizer in enumerate(self.optimizers(), 1):
            label = type(optimizer).__name__ + (f" {number}" if number > 1 else "")
            for at, (_, parameter, state) in enumerate(parameters_with_state(optimizer)):
                name = f"parameter {at} of {label}"
                found[name] = parameter
                if parameter.grad is not None:
                    found[f"gradient of {name}"] = parameter.grad
                for key, value in state.items():
                    if isinstance(value, self._torch.Tensor):
                        found[f"{key} of {name}"] = value
        return found
