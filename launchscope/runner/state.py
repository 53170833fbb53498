"""Saves and restores what a step changes on the GPU, so that replays leave no trace.

State is every storage that the step can write: parameters, gradients, buffers,
optimizer state, and whatever else the inspection saw written. One copy is kept, on the
device where it has room, on the host otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# A copy on the device must leave this factor of its own size free.
_HEADROOM = 2.0


class StateTooLargeError(RuntimeError):
    """Neither the device nor the host has room for a copy of the state."""


class DeviceState:
    """The mutable device memory of one training or inference loop."""

    def __init__(
        self,
        torch: Any,
        modules: Iterable[Any],
        optimizers: Iterable[Any],
        storages: Iterable[Any] = (),
    ):
        self._torch = torch
        self._modules = list(modules)
        self._optimizers = list(optimizers)
        self._extra = list(storages)
        self._copies: list[tuple[Any, Any]] = []
        self._rng: Any = None
        self.on_host = False

    def _tensors(self) -> Iterable[Any]:
        for module in self._modules:
            for parameter in module.parameters():
                yield parameter
                yield parameter.grad
            yield from module.buffers()
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    yield parameter
                    yield parameter.grad
                yield from group.values()
            for state in optimizer.state.values():
                yield from state.values() if isinstance(state, dict) else ()

    def _storages(self) -> dict[int, Any]:
        """Live CUDA storages by address, each once."""
        torch = self._torch
        found = {}
        for tensor in self._tensors():
            if isinstance(tensor, torch.Tensor) and tensor.is_cuda and tensor.numel():
                storage = tensor.untyped_storage()
                found[storage.data_ptr()] = storage
        for reference in self._extra:
            cdata = getattr(reference, "cdata", None)
            storage = torch.UntypedStorage._new_with_weak_ptr(cdata) if cdata else None
            if storage is not None and storage.device.type == "cuda" and storage.nbytes():
                found[storage.data_ptr()] = storage
        return found

    def bytes(self) -> int:
        """Size of one copy."""
        return sum(storage.nbytes() for storage in self._storages().values())

    def save(self) -> None:
        """Take the copy; an earlier one is replaced.

        Raises StateTooLargeError when neither device nor host has room.
        """
        torch = self._torch
        self._copies = []
        storages = self._storages()
        need = sum(storage.nbytes() for storage in storages.values())
        free, _ = torch.cuda.mem_get_info()
        cached = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        self.on_host = need * _HEADROOM > free + cached
        if self.on_host and need > _free_host_bytes():
            raise StateTooLargeError(
                f"a copy of the step's state takes {need / 2**20:,.0f} MiB, "
                "more than the device or the host has free"
            )
        for storage in storages.values():
            live = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
            self._copies.append((live, live.cpu() if self.on_host else live.clone()))
        self._rng = torch.cuda.get_rng_state()

    def restore(self) -> None:
        """Put the saved copy back; ordered on the current stream, device RNG included."""
        if not self._copies:
            return
        with self._torch.no_grad():
            for live, copy in self._copies:
                live.copy_(copy)
        self._torch.cuda.set_rng_state(self._rng)

    def forget(self) -> None:
        self._copies = []
        self._rng = None


def _free_host_bytes() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as info:
            for line in info:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 8 * 2**30  # no way to ask: take what any training machine has


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
