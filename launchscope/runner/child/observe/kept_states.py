"""The states of the original, from which the steps of other runs begin.

In a long run two orders of additions end far from each other. A step that begins with the same
values does not: it is off by its own rounding alone.
"""

from __future__ import annotations

import os
import shutil

from launchscope.runner.child.torch_types import Tensor, Torch
from launchscope.runner.protocol.observation import EVENT_EVERY

_MOST_BYTES = 2 << 30  # of all states together
# Steps from one state to the next. With each of these the forced events begin with a kept state.
_DISTANCES = tuple(n for n in range(1, EVENT_EVERY + 1) if EVENT_EVERY % n == 0)


class KeptStates:
    """Files in a folder: one run writes them, others read them (`restores`), until so many units
    are over."""

    def __init__(self, torch: Torch, folder: str, restores: bool, step: int, until: int):
        self._torch, self._folder, self._restores = torch, folder, restores
        self._until = until
        self._step = step  # units from one state that may be kept to the next
        self._every: int | None = None  # 0: too large to keep

    def exchange(self, unit: int, tensors: dict[str, Tensor]) -> bool:
        """Write the state after so many units, or put the one that was written into the tensors;
        False where it is not kept."""
        path = os.path.join(self._folder, f"{unit}.pt")
        if self._restores:
            return self._restore(path, tensors)
        if self._every is None:
            os.makedirs(self._folder, exist_ok=True)
            self._every = self._distance(tensors)
        if not self._every or unit % self._every:
            return False
        torch = self._torch
        copies = {name: t.detach().to("cpu", copy=True) for name, t in tensors.items()}
        copies = {
            name: t.clone(memory_format=torch.contiguous_format) for name, t in copies.items()
        }
        torch.save(copies, path)
        return True

    def _distance(self, tensors: dict[str, Tensor]) -> int:
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        room = min(_MOST_BYTES, shutil.disk_usage(self._folder).free // 2)
        fitting = (
            n for n in _DISTANCES if n % self._step == 0 and size * (self._until // n) <= room
        )
        return next(fitting, 0)

    def _restore(self, path: str, tensors: dict[str, Tensor]) -> bool:
        if not os.path.exists(path):
            return False
        torch = self._torch
        kept = torch.load(path, map_location="cpu", weights_only=True)
        with torch.no_grad():
            for name, tensor in tensors.items():
                value = kept.get(name)
                if value is not None and value.shape == tensor.shape:
                    tensor.detach().copy_(value)
        return True
