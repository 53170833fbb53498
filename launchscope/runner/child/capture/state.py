"""Saves and restores what a step changes on the device, so that replays leave no trace.

State is every storage that the step can write: parameters, gradients, buffers,
optimizer state, and whatever else the inspection saw written. One copy is kept, on the
device where it has room, on the host otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from launchscope.host import free_memory

# A copy on the device must leave this factor of its own size free.
_HEADROOM = 2.0


class StateTooLargeError(RuntimeError):
    """Neither the device nor the host has room for a copy of the state."""


@dataclass
class Saved:
    """One storage: its live memory and the copy of it, both as bytes, and what they hold."""

    live: Any
    copy: Any
    dtype: Any  # None where it is not known
    group: int | None  # of parameters, those that are updated alike; None: something else


class DeviceState:
    """The mutable device memory of one training or inference loop.

    `storages` are weak references to further storages, or a dict that also has their dtypes.
    `device` is "cuda" but in tests.
    """

    def __init__(
        self,
        torch: Any,
        modules: Iterable[Any],
        optimizers: Iterable[Any],
        storages: Iterable[Any] = (),
        device: str = "cuda",
    ):
        self._torch = torch
        self._modules = list(modules)
        self._optimizers = list(optimizers)
        self._extra = {
            reference: storages.get(reference) if isinstance(storages, dict) else None
            for reference in storages
        }
        self._device = device
        self._saved: dict[int, Saved] = {}
        self._rng: Any = None
        self.on_host = False

    def _tensors(self) -> Iterator[tuple[Any, int | None]]:
        """Every tensor of optimizers and modules; of parameters with the number of their group."""
        number = 0  # of the parameters that no optimizer has
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                number += 1
                for parameter in group["params"]:
                    yield parameter, number
                    yield parameter.grad, None
                yield from ((value, None) for value in group.values())
            for state in optimizer.state.values():
                values = state.values() if isinstance(state, dict) else ()
                yield from ((value, None) for value in values)
        for module in self._modules:
            for parameter in module.parameters():
                yield parameter, 0
                yield parameter.grad, None
            yield from ((buffer, None) for buffer in module.buffers())

    def _storages(self) -> dict[int, tuple[Any, Any, int | None]]:
        """Live storages of the device by address, each once, with dtype and group."""
        torch = self._torch
        found: dict[int, tuple[Any, Any, int | None]] = {}
        for tensor, group in self._tensors():
            if not isinstance(tensor, torch.Tensor) or tensor.device.type != self._device:
                continue
            if tensor.numel() and tensor.layout == torch.strided:
                storage = tensor.untyped_storage()
                found.setdefault(storage.data_ptr(), (storage, tensor.dtype, group))
        for reference, dtype in self._extra.items():
            cdata = getattr(reference, "cdata", None)
            storage = torch.UntypedStorage._new_with_weak_ptr(cdata) if cdata else None
            if storage is not None and storage.device.type == self._device and storage.nbytes():
                found.setdefault(storage.data_ptr(), (storage, dtype, None))
        return found

    def bytes(self) -> int:
        """Size of one copy."""
        return sum(storage.nbytes() for storage, _, _ in self._storages().values())

    def save(self) -> None:
        """Take the copy; an earlier one is replaced.

        Raises StateTooLargeError when neither device nor host has room.
        """
        torch = self._torch
        self._saved = {}
        storages = self._storages()
        need = sum(storage.nbytes() for storage, _, _ in storages.values())
        self.on_host = not room_on_device(torch, need, self._device)
        if self.on_host and need > free_memory():
            raise StateTooLargeError(
                f"a copy of the step's state takes {need / 2**20:,.0f} MiB, "
                "more than the device or the host has free"
            )
        with torch.inference_mode(False), torch.no_grad():
            for address, (storage, dtype, group) in storages.items():
                live = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
                copy = live.cpu() if self.on_host else live.clone()
                self._saved[address] = Saved(live, copy, dtype, group)
        self._rng = self._generator().get_rng_state()

    def restore(self) -> None:
        """Put the saved copy back; ordered on the current stream, device RNG included."""
        if self._rng is None:
            return
        with self._torch.inference_mode(False), self._torch.no_grad():
            for saved in self._saved.values():
                saved.live.copy_(saved.copy)
        self._generator().set_rng_state(self._rng)

    def forget(self) -> None:
        self._saved = {}
        self._rng = None

    @property
    def saved(self) -> dict[int, Saved]:
        """What the last `save` copied, by address."""
        return self._saved

    def _generator(self) -> Any:
        return self._torch.cuda if self._device == "cuda" else self._torch


def room_on_device(torch: Any, need: int, device: str = "cuda") -> bool:
    """Whether `need` more bytes leave the device as much again."""
    if device != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info()
    cached = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return bool(need * _HEADROOM <= free + cached)


def copy_of(torch: Any, tensor: Any) -> Any:
    """A copy of one tensor, on its device or, where that has no room, on the host.

    Raises StateTooLargeError when neither has.
    """
    need = tensor.numel() * tensor.element_size()
    with torch.inference_mode(False), torch.no_grad():
        if tensor.device.type != "cuda" or room_on_device(torch, need):
            return tensor.detach().clone()
        if need > free_memory():
            raise StateTooLargeError(
                f"a copy of an input takes {need / 2**20:,.0f} MiB, "
                "more than the device or the host has free"
            )
        return tensor.detach().cpu()


class OptimizerFlags:
    """`capturable=True` for the optimizers that need it, put on and taken off again.

    An Adam-family optimizer counts its steps in a host tensor unless it is capturable or
    fused. With the flag on, the count lives on the device, as a capture needs it; off, the
    user's own tensors are back, with the count brought up to date.
    """

    def __init__(self, torch: Any, optimizers: Iterable[Any]):
        self._torch = torch
        self._optimizers = [o for o in optimizers if _lacks_capturable(o)]
        self._host_counts: list[tuple[dict[str, Any], Any, Any]] = []
        self.applied = False

    @property
    def changes(self) -> tuple[str, ...]:
        """What a person has to change, as text; empty if nothing."""
        names = dict.fromkeys(f"{type(o).__name__} capturable=True" for o in self._optimizers)
        return tuple(names)

    def apply(self) -> None:
        if self.applied:
            return
        self.applied = True
        known = {id(state): device for state, _, device in self._host_counts}
        counts = []
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["capturable"] = True
                for parameter in group["params"]:
                    state = optimizer.state.get(parameter)
                    count = None if state is None else state.get("step")
                    if count is None or not isinstance(count, self._torch.Tensor):
                        continue
                    if count.is_cuda:
                        continue
                    device = known.get(id(state))
                    if device is None:
                        device = count.to(parameter.device)
                    else:  # the graph refers to this very tensor
                        device.copy_(count)
                    state["step"] = device
                    counts.append((state, count, device))
        self._host_counts = counts

    def revert(self) -> None:
        if not self.applied:
            return
        self.applied = False
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["capturable"] = False
        for state, count, device in self._host_counts:
            count.copy_(device)
            state["step"] = count


def _lacks_capturable(optimizer: Any) -> bool:
    return any(group.get("capturable") is False for group in optimizer.param_groups)
