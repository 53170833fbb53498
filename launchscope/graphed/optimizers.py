"""Which optimizers a graph can contain, told by their own flags and by what a watched step did, and
the form in which it contains them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from . import cuda
from .arguments import Tensor, is_plain

Optimizer = torch.optim.Optimizer


def hyperparameters(optimizers: Iterable[Optimizer]) -> dict[Any, Any]:
    """Plain hyperparameters by optimizer, number of the group, and name."""
    return {
        (id(optimizer), number, name): value
        for optimizer in optimizers
        for number, group in enumerate(optimizer.param_groups)
        for name, value in group.items()
        if is_plain(value)
    }


def plain_values(optimizer: Optimizer) -> list[Any]:
    """The Python values of an optimizer: what only its own Python code can count."""
    tables = vars(optimizer), *optimizer.param_groups, *optimizer.state.values()
    return [(name, v) for table in tables for name, v in table.items() if is_plain(v)]


def fits(optimizer: Optimizer, moving: set[Any], scaled: bool, *, on_host: bool) -> bool:
    """Whether a graph can contain the optimizer's step; otherwise it runs eagerly after the graph.

    A graph has plain numbers in it as constants. Of those that move only a learning rate can be a
    tensor, and only where the step counts can be on the GPU. Under a GradScaler the optimizer has
    to skip a step without asking the host. `on_host`: a watched step computed on the host.
    """
    groups = optimizer.param_groups
    names = {name for owner, _, name in moving if owner == id(optimizer)}
    if names - {"lr"} or any(group.get("differentiable") for group in groups):
        return False
    fused = all(group.get("fused") for group in groups)
    if fused or scaled:
        return fused and (not scaled or getattr(optimizer, "_step_supports_amp_scaling", False))
    if "capturable" in optimizer.defaults:
        return not any(
            isinstance(value, Tensor) and value.device.type != cuda.gpu.type and name != "step"
            for state in optimizer.state.values()
            for name, value in state.items()
        )
    return not names and not on_host


class Form:
    """Optimizers in the form that a graph contains, while `with` lasts. Outside, a learning rate is
    what the script has put there and step counts are on the CPU. The counts are views of one
    tensor, so that one addition keeps them right after a replay."""

    def __init__(self, optimizers: Iterable[Optimizer], moving: set[Any]):
        self._swaps: list[tuple[dict[str, Any], str, Any]] = []
        self._theirs: list[Any] = []
        self._rates: list[tuple[dict[str, Any], Tensor]] = []
        self._optimizers = list(optimizers)
        for optimizer in self._optimizers:
            for number, group in enumerate(optimizer.param_groups):
                if group.get("capturable") is False:
                    self._swaps.append((group, "capturable", True))
                device = next((p.device for p in group["params"]), torch.device(cuda.gpu.type))
                rate = group.get("lr")
                on_host = isinstance(rate, Tensor) and rate.device != device
                if on_host or (id(optimizer), number, "lr") in moving:
                    self._rates.append((group, torch.zeros((), dtype=torch.float32, device=device)))
                    self._swaps.append((group, "lr", self._rates[-1][1]))
        self._rate_values: list[Any] = [None] * len(self._rates)
        self._groups = [group for o in self._optimizers for group in o.param_groups]
        counted = self._counted()
        self.on_host = torch.tensor([float(s["step"]) for s in counted], dtype=torch.float32)
        self.on_device: Tensor | None = None
        if counted:
            self.on_device = self.on_host.to(cuda.gpu.type, copy=True)
            for index, state in enumerate(counted):
                state["step"] = self.on_host[index]
                self._swaps.append((state, "step", self.on_device[index]))
        self._counts = [(state, state["step"]) for state in counted]
        self._synced = self.on_host.clone()

    def _counted(self) -> list[dict[str, Any]]:
        """The states whose step count is on the CPU."""
        return [
            state
            for optimizer in self._optimizers
            for group in optimizer.param_groups
            if group.get("capturable") is False and not group.get("fused")
            for state in (optimizer.state.get(p, {}) for p in group["params"])
            if isinstance(state.get("step"), Tensor)
        ]

    def serves(self, optimizers: list[Optimizer]) -> bool:
        """Whether these are the optimizers, and hold what they held."""
        groups, counted = [g for o in optimizers for g in o.param_groups], self._counted()
        return (
            optimizers == self._optimizers
            and list(map(id, groups)) == list(map(id, self._groups))
            and list(map(id, counted)) == [id(state) for state, _ in self._counts]
            and all(state["step"] is count for state, count in self._counts)
        )

    def __enter__(self) -> None:
        self._theirs = [table[key] for table, key, _ in self._swaps]
        for table, key, ours in self._swaps:
            table[key] = ours

    def __exit__(self, *error: Any) -> None:
        for (table, key, _), theirs in zip(self._swaps, self._theirs):
            table[key] = theirs

    def refresh(self) -> None:
        """Put the learning rates and counts of this moment where the graph reads them."""
        for index, (group, rate) in enumerate(self._rates):
            value = float(group["lr"])
            if value != self._rate_values[index]:
                rate.fill_(value)
                self._rate_values[index] = value
        if self.on_device is not None and not torch.equal(self.on_host, self._synced):
            self.on_device.copy_(self.on_host)  # the script, or an eager call, has counted
            self._synced.copy_(self.on_host)

    def count(self, increments: Tensor) -> None:
        """After a replay, whose counts on the GPU are ahead by the same."""
        if self.on_device is not None:
            self.on_host.add_(increments)
            self._synced.add_(increments)

    def tensors(self) -> list[Tensor]:
        counts = [] if self.on_device is None else [self.on_device]
        return [*(rate for _, rate in self._rates), *counts, self.on_host]


class Optimizers:
    """Those that watched calls have stepped: what a graph contains, and in which form."""

    def __init__(self) -> None:
        self.inside: list[Optimizer] = []
        self.outside: list[Optimizer] = []
        self.form = Form((), set())
        self.moving: set[Any] = set()  # hyperparameters that have changed
        self.on_host: set[int] = set()  # those that compute on the host
        self.counting: set[int] = set()  # those that change their own Python values
        self._values: dict[Any, Any] = {}  # of the hyperparameters

    def sort(self, stepped: list[Optimizer], reached: list[Optimizer], scaled: bool) -> None:
        """Decide by all that watched calls have seen."""
        values = hyperparameters(dict.fromkeys((*reached, *stepped)))
        moved = {k for k, v in self._values.items() if k in values and values[k] != v}
        grown = moved - self.moving
        self.moving |= moved
        self._values = values
        inside = [
            o for o in stepped
            if id(o) not in self.counting
            and fits(o, self.moving, scaled, on_host=id(o) in self.on_host)
        ]  # fmt: skip
        self.outside = [o for o in stepped if o not in inside]
        if grown or not self.form.serves(inside):
            with torch.inference_mode(False):
                self.inside, self.form = inside, Form(inside, self.moving)
