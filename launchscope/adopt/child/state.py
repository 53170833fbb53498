"""The tensors that training changes, by names that are the same in two versions of a script."""

from __future__ import annotations

import weakref
import zlib
from collections.abc import Iterator

from launchscope.runner.child.facts.plain_values import name_of_squares, objects_of, part_here
from launchscope.runner.child.facts.torch_types import Module, Optimizer, Tensor, Torch, Value


class TrainingState:
    """Parameters, buffers, optimizer state and gradient scales. Optimizers are known from their
    construction on; modules are found among the objects that are alive."""

    def __init__(self, torch: Torch):
        self._torch = torch
        self._optimizers: list[weakref.ref[Optimizer]] = []
        self._modules: list[weakref.ref[Module]] = []
        self._trained: list[weakref.ref[Module]] = []
        self._scalers: list[weakref.ref[Value]] = []
        # By the name of a parameter, those of its squared gradients; of the last `tensors`.
        self.squares: dict[str, list[str]] = {}

    def add_optimizer(self, optimizer: Optimizer) -> None:
        if all(known() is not optimizer for known in self._optimizers):
            self._optimizers.append(weakref.ref(optimizer))

    def optimizers(self) -> list[tuple[int, Optimizer]]:
        found = ((number, known()) for number, known in enumerate(self._optimizers))
        return [(number, optimizer) for number, optimizer in found if optimizer is not None]

    def modules(self) -> list[Module]:
        """The outermost ones, those first that an optimizer trains."""
        return [found for known in self._modules if (found := known()) is not None]

    def trained_modules(self) -> list[Module]:
        """Those of them that an optimizer trains."""
        return [found for known in self._trained if (found := known()) is not None]

    def find_modules(self) -> None:
        """Look for modules and scalers; again where a script may have made new ones."""
        kind, scaler = self._torch.nn.Module, self._torch.amp.GradScaler
        found = objects_of(lambda made: issubclass(made, kind | scaler))
        modules = [module for module in found if isinstance(module, kind)]
        inner = {id(child) for module in modules for child in module._modules.values()}
        trained = {id(parameter) for parameter in self.parameters()}

        def order(module: Module) -> tuple[bool, str, int]:
            parts = [(id(t) in trained, tuple(t.shape)) for t in module.parameters()]
            shapes = zlib.crc32(str([shape for _, shape in parts]).encode())
            return not any(known for known, _ in parts), type(module).__qualname__, shapes

        outer = [m for m in modules if id(m) not in inner and any(True for _ in _tensors(m))]
        self._modules = list(map(weakref.ref, sorted(outer, key=order)))
        self._trained = [weakref.ref(module) for module in outer if not order(module)[0]]
        self._scalers = [weakref.ref(value) for value in found if isinstance(value, scaler)]

    def parameters(self) -> Iterator[Tensor]:
        """Of all optimizers."""
        for _, optimizer in self.optimizers():
            for group in optimizer.param_groups:
                yield from group["params"]

    def has_partial_momentum(self) -> bool:
        """Whether an SGD has momentum for some parameters of a group, but not for all."""
        for _, optimizer in self.optimizers():
            for group in (
                optimizer.param_groups if isinstance(optimizer, self._torch.optim.SGD) else ()
            ):
                states = (optimizer.state.get(parameter, {}) for parameter in group["params"])
                buffers = [state.get("momentum_buffer") is not None for state in states]
                if any(buffers) and not all(buffers):
                    return True
        return False

    def tensors(self) -> dict[str, Tensor]:
        """By name, each once; of a tensor in parts that of this rank."""
        found: dict[str, Tensor] = {}
        names: dict[int, str] = {}
        self.squares = {}
        modules = self.modules()
        for number, module in enumerate(modules):
            label = "" if len(modules) == 1 else f"model {number + 1}: "
            for name, tensor in _tensors(module):
                if id(tensor) not in names:
                    names[id(tensor)] = f"{label}{name}"
                    found[names[id(tensor)]] = tensor
        for number, optimizer in self.optimizers():
            label = f"{type(optimizer).__name__}" + (f" {number + 1}" if number else "")
            for at, parameter in enumerate(p for g in optimizer.param_groups for p in g["params"]):
                full = name = names.get(id(parameter), "")
                if not name:
                    name = f"parameter {at}"
                    full = f"{label}: {name}"
                    found[full] = parameter
                state = optimizer.state.get(parameter, {})
                for key, value in state.items():
                    if isinstance(value, self._torch.Tensor):
                        found[f"{label}: {key} of {name}"] = value
                square = name_of_squares(state)
                if square is not None and _is_like(state[square], parameter):
                    of_parameter = self.squares.setdefault(full, [])
                    of_parameter.append(f"{label}: {square} of {name}")
        for number, known in enumerate(self._scalers):
            scale = getattr(known(), "_scale", None)
            if isinstance(scale, self._torch.Tensor):
                found[f"scale {number + 1}"] = scale
        return {name: part_here(tensor) for name, tensor in found.items()}


def _is_like(value: Value, parameter: Tensor) -> bool:
    """Whether a value has one real number for each of the parameter's."""
    return (
        isinstance(value, type(parameter.data))
        and value.shape == parameter.shape
        and value.is_floating_point()
        and parameter.is_floating_point()
    )


def _tensors(module: Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()
