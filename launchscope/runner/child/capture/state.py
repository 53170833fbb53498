"""Saves and restores what a step changes on the device, so that replays leave no trace.

The state is every storage that the step can write: parameters, gradients, buffers, optimizer
state, and whatever else the inspection saw written. The copy is kept on the device if there is
room, otherwise on the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launchscope.host import free_memory
from launchscope.model import OptimizerChange
from launchscope.runner.child.facts.plain_values import (
    gradient_of,
    objects_below,
    parameters_with_state,
    part_here,
    values_of,
)
from launchscope.runner.child.facts.reasons import ReasonError
from launchscope.runner.child.facts.step_ops import alive
from launchscope.runner.child.facts.torch_types import (
    Device,
    DType,
    Kwargs,
    Module,
    Optimizer,
    ParamGroup,
    Storage,
    StorageRef,
    Tensor,
    Torch,
    Value,
)

if TYPE_CHECKING:
    from launchscope.graphed.capture import SavedState

# Free device memory that a copy requires, as a multiple of its own size.
_HEADROOM = 2.0


@dataclass
class Saved:
    """The live memory of one storage and a copy of it, both as tensors of bytes."""

    live: Tensor
    copy: Tensor
    dtype: DType  # of its content; None if unknown
    group: int | None  # of parameters that are updated alike; None: not a parameter


class DeviceState:
    """The device memory that a training or inference loop changes.

    `further` are weak references to more storages, with their dtypes where they are known. Only
    tests pass another `device` than "cuda".
    """

    def __init__(
        self,
        torch: Torch,
        modules: Iterable[Module],
        optimizers: Iterable[Optimizer],
        further: dict[StorageRef, DType],
        device: str = "cuda",
    ):
        self._torch = torch
        self._modules = list(modules)
        self._optimizers = list(optimizers)
        self._further = further
        self._device = device
        self._generator = torch.cuda if device == "cuda" else torch
        self.saved: dict[int, Saved] = {}  # the content of the last `save`, by address
        self._rng: Tensor = None

    def save(self) -> None:
        """Copy the state; replaces an earlier copy.

        Raises ReasonError if neither the device nor the host has room.
        """
        torch = self._torch
        self.saved = {}
        storages = self._storages()
        need = sum(storage.nbytes() for storage, _, _ in storages.values())
        to_host = _goes_to_host(torch, need, self._device, "the step's state")
        with torch.inference_mode(False), torch.no_grad():
            for address, (storage, dtype, group) in storages.items():
                live = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
                copy = live.cpu() if to_host else live.clone()
                self.saved[address] = Saved(live, copy, dtype, group)
        self._rng = self._generator.get_rng_state()

    def restore(self) -> None:
        """Put the saved copy and the device's RNG state back, ordered on the current stream."""
        if self._rng is None:
            return
        with self._torch.inference_mode(False), self._torch.no_grad():
            for saved in self.saved.values():
                saved.live.copy_(saved.copy)
        self._generator.set_rng_state(self._rng)

    def forget(self) -> None:
        self.saved = {}
        self._rng = None

    def _storages(self) -> dict[int, tuple[Storage, DType, int | None]]:
        """Live storages on the device by address, with dtype and group."""
        torch, found = self._torch, dict[int, tuple[Storage, DType, int | None]]()
        for tensor, group in state_values(self._modules, self._optimizers):
            if not isinstance(tensor, torch.Tensor) or tensor.device.type != self._device:
                continue
            if tensor.layout == torch.strided and tensor.numel():
                content = tensor.untyped_storage(), tensor.dtype, group
                found.setdefault(_address(tensor), content)
        for reference, dtype in self._further.items():
            storage = alive(reference)
            if storage is not None and storage.device.type == self._device and storage.nbytes():
                found.setdefault(storage.data_ptr(), (storage, dtype, None))
        return found


def _address(tensor: Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def state_values(
    modules: Iterable[Module], optimizers: Iterable[Optimizer]
) -> Iterator[tuple[Value, int | None]]:
    """Parameters, gradients, buffers, optimizer state and other values of optimizers. Of a tensor
    that is split among ranks, this rank's part.

    A parameter comes with the number of its parameter group, 0 if no optimizer has it.
    """
    number = 0
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            number += 1
            for parameter in group["params"]:
                yield part_here(parameter), number
                yield part_here(gradient_of(parameter)), None
        tables = (*optimizer.param_groups, *values_of(getattr(optimizer, "state", None)))
        yield from ((part_here(value), None) for table in tables for value in values_of(table))
    for module in modules:
        for parameter in module.parameters():
            yield part_here(parameter), 0
            yield part_here(gradient_of(parameter)), None
        yield from ((part_here(buffer), None) for buffer in module.buffers())


def before_capture(
    torch: Torch, modules: Iterable[Module], optimizers: Iterable[Optimizer]
) -> SavedState:
    """What a failed capture leaves changed: gradients, optimizers and their state, gradient
    scalers, the random generator."""
    from launchscope.graphed.capture import SavedState  # imports torch, as the script did by now

    tables, parameters = [], [one for module in modules for one in module.parameters()]
    for optimizer in optimizers:
        known = vars(optimizer), optimizer.state, *optimizer.state.values()
        tables += [table for table in known if isinstance(table, dict)]
        parameters += [parameter for _, parameter, _ in parameters_with_state(optimizer)]
    leaves = {id(one): one for one in parameters if one.is_leaf}
    scalers = [one for one in objects_below(torch.amp.GradScaler) if one.is_enabled()]
    return SavedState(list(leaves.values()), tables, scalers)


def copy_of(torch: Torch, tensor: Tensor) -> Tensor:
    """A copy of one tensor, on its device or, if that has no room, on the host.

    Raises ReasonError if neither has room.
    """
    need = tensor.numel() * tensor.element_size()
    with torch.inference_mode(False), torch.no_grad():
        if _goes_to_host(torch, need, tensor.device.type, "an input"):
            return tensor.detach().cpu()
        return tensor.detach().clone()


def _goes_to_host(torch: Torch, need: int, device: str, what: str) -> bool:
    """Whether a copy has no room on the device; raises ReasonError if the host has none either."""
    if device != "cuda":
        return False
    free, _ = torch.cuda.mem_get_info()
    cached = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    if need * _HEADROOM <= free + cached:
        return False
    if need > free_memory():
        raise ReasonError("state_too_large", what=what, mib=need / 2**20)
    return True


class OptimizerFlags:
    """Sets `capturable=True` on the optimizers that need it, and takes it back.

    Without the flag an Adam-family optimizer keeps numbers of its state on the host, such as the
    count of its steps. With the flag they are on the device, as a capture requires; then the
    script's own tensors are back, with the current numbers.
    """

    def __init__(self, optimizers: Iterable[Optimizer]):
        self._optimizers = [one for one in optimizers if _not_capturable(one)]
        self._groups: list[ParamGroup] = []  # whose flag is set
        # By state and name: a graph refers to these very tensors.
        self._on_device: dict[tuple[int, str], Tensor] = {}
        self._moved: list[tuple[Kwargs, str, Tensor]] = []  # with the script's own tensors

    @property
    def changes(self) -> tuple[OptimizerChange, ...]:
        """What you have to change in your script; empty if nothing."""
        names = dict.fromkeys(type(optimizer).__name__ for optimizer in self._optimizers)
        return tuple(OptimizerChange(name, "capturable", True) for name in names)

    def apply(self) -> None:
        """Does nothing where the flags are set."""
        for optimizer in self._optimizers if not self._groups else ():
            for state, name, on_host, device in _numbers_on_host(optimizer):
                key = id(state), name
                if key not in self._on_device:
                    self._on_device[key] = on_host.to(device)
                state[name] = self._on_device[key].copy_(on_host)
                self._moved.append((state, name, on_host))
        self._groups += [group for one in self._optimizers for group in _not_capturable(one)]
        for group in self._groups:
            group["capturable"] = True

    def revert(self) -> None:
        for group in self._groups:
            group["capturable"] = False
        for state, name, on_host in self._moved:
            state[name] = on_host.copy_(state[name])
        self._groups, self._moved = [], []


def _not_capturable(optimizer: Optimizer) -> list[ParamGroup]:
    return [group for group in optimizer.param_groups if group.get("capturable") is False]


def _numbers_on_host(optimizer: Optimizer) -> Iterator[tuple[Kwargs, str, Tensor, Device]]:
    """The tensors of one element in its state that are not beside their parameter, and where that
    is."""
    for _, parameter, state in parameters_with_state(optimizer):
        for name, value in list(state.items()):
            is_number = getattr(value, "ndim", None) == 0
            if is_number and value.device != parameter.device:
                yield state, name, value, parameter.device
