"""The tensors that training changes, by names that are the same in two versions of a script."""

from __future__ import annotations

import weakref
import zlib
from collections.abc import Iterator

from launchscope.runner.child.facts.plain_values import objects_of
from launchscope.runner.child.facts.torch_types import Module, Optimizer, Tensor, Torch


class TrainingState:
    """Parameters with their gradients, buffers and optimizer state. Optimizers are known from their
    construction on; modules are looked for among the objects that are alive."""

    def __init__(self, torch: Torch):
        self._torch = torch
        self._optimizers: list[weakref.ref[Optimizer]] = []
        self._modules: list[weakref.ref[Module]] = []

    def add_optimizer(self, optimizer: Optimizer) -> None:
        if all(known() is not optimizer for known in self._optimizers):
            self._optimizers.append(weakref.ref(optimizer))

    def optimizers(self) -> list[Optimizer]:
        return [found for known in self._optimizers if (found := known()) is not None]

    def modules(self) -> list[Module]:
        """The outermost ones, those first that an optimizer trains."""
        return [found for known in self._modules if (found := known()) is not None]

    def find_modules(self) -> None:
        kind = self._torch.nn.Module
        modules = objects_of(lambda made: issubclass(made, kind))
        inner = {id(child) for module in modules for child in module._modules.values()}
        trained = {
            id(p) for o in self.optimizers() for group in o.param_groups for p in group["params"]
        }

        def order(module: Module) -> tuple[bool, str, int]:
            shapes = str([tuple(t.shape) for t in module.parameters()]).encode()
            trains = any(id(t) in trained for t in module.parameters())
            return not trains, type(module).__qualname__, zlib.crc32(shapes)

        outer = [m for m in modules if id(m) not in inner and any(True for _ in _tensors(m))]
        self._modules = list(map(weakref.ref, sorted(outer, key=order)))

    def has_partial_momentum(self) -> bool:
        """Whether an SGD has momentum for some parameters of a group, but not for all."""
        kind = self._torch.optim.SGD
        for optimizer in self.optimizers():
            for group in optimizer.param_groups if isinstance(optimizer, kind) else ():
                states = (optimizer.state.get(parameter, {}) for parameter in group["params"])
                buffers = [state.get("momentum_buffer") is not None for state in states]
                if any(buffers) and not all(buffers):
                    return True
        return False

    def tensors(self) -> dict[str, Tensor]:
        """By name, each once."""
        names: dict[int, str] = {}
        found: dict[str, Tensor] = {}
        modules = self.modules()
        for number, module in enumerate(modules):
            label = "" if len(modules) == 1 else f"model {number + 1}: "
            for name, tensor in _tensors(module):
                if id(tensor) not in names:
                    found[names.setdefault(id(tensor), f"{label}{name}")] = tensor
        for number, optimizer in enumerate(self.optimizers()):
            label = f"{type(optimizer).__name__}" + (f" {number + 1}" if number else "")
            for at, parameter in enumerate(p for g in optimizer.param_groups for p in g["params"]):
                name = names.get(id(parameter), f"{label}: parameter {at}")
                found[name] = parameter
                for key, value in optimizer.state.get(parameter, {}).items():
                    if isinstance(value, self._torch.Tensor):
                        found[f"{label}: {key} of {name}"] = value
        gradients = {f"gradient of {name}": tensor.grad for name, tensor in found.items()
                     if tensor.is_leaf and tensor.grad is not None}  # fmt: skip
        return found | gradients


def _tensors(module: Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()
