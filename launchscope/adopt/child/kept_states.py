"""The states of the original, from which the steps of other runs begin.

In a long run two orders of additions end far from each other. A step that begins with the same
values does not: it is off by its own rounding alone.
"""

from __future__ import annotations

import functools
import os
import shutil
from typing import Any

from launchscope.adopt.observation import EVENT_EVERY
from launchscope.runner.child.facts.torch_types import Tensor, Torch

_MOST_BYTES = 3 << 30  # of all states together
# By the bytes of an element. One unit in the last place of each parameter makes less of a
# difference than other kernels do, which round every sum: a 13th of it in a small ResNet on a CPU.
_UNITS_OFF = {4: 8, 8: 8}
# Of weights whose products may be computed in TF32. Gradients of convolutions in float32 were, on
# an H200, up to 76 times as far from those in TF32 as 8 units make them, and 4 times as 64 do.
_UNITS_OFF_IN_TF32 = 64
# Steps from one state to the next, where not each is kept: with each of these the forced events
# begin with a kept state.
_DISTANCES = tuple(n for n in range(1, EVENT_EVERY + 1) if EVENT_EVERY % n == 0)


class KeptStates:
    """Files in a folder: one run writes them, others read them (`restores`), until so many units
    are over. Where there is no room for all, only those from the unit `events` on are kept, where
    something is forced in each few steps. `rounds`: the parameters that are read are off by their
    rounding, in the way of this number; 0: they are not."""

    def __init__(
        self,
        torch: Torch,
        folder: str,
        restores: bool,
        step: int,
        until: int,
        events: int = 0,
        *,
        rounds: int = 0,
    ):
        self._torch, self._folder, self._restores, self._rounds = torch, folder, restores, rounds
        self._until, self._events = until, events
        self._step = step  # units from one state that may be kept to the next
        self._kept: tuple[int, int] | None = None  # the first, and from one to the next; 0: none
        self._before: dict[str, Tensor] = {}
        self.since = 0  # the unit of the state from which `updates` counts

    def updates(
        self, tensors: dict[str, Tensor], squares: dict[str, list[str]]
    ) -> dict[str, Tensor]:
        """How far parameters have moved since the last state that was kept or restored, each
        element times the root of its mean squared gradient; of two optimizers, the smaller root.

        Adam divides each element of an update by that root (Kingma and Ba 2015, algorithm 1). In
        its first steps it so moves an element whose gradient is nothing but rounding as far as all
        others, up or down. The product is as far off as the gradient is.
        """
        found = {}
        for name, known in squares.items():
            before = self._before.get(name)
            if before is not None and before.shape == tensors[name].shape:
                now = tensors[name].detach().double()
                roots = [tensors[square].detach().to(now).clamp_min(0).sqrt() for square in known]
                root = functools.reduce(self._torch.minimum, roots)
                # On the device: the processor takes longer for a large model than its step does.
                found[name] = (now - before.to(now)) * root
        return found

    def exchange(self, unit: int, tensors: dict[str, Tensor]) -> bool:
        """Write the state after so many units, or put the one that was written into the tensors;
        False where it is not kept. All runs begin alike: that state stays as it is."""
        path = os.path.join(self._folder, f"{unit}.pt")
        os.makedirs(self._folder, exist_ok=True)
        if unit == 0:
            if self._room(tensors)[1]:
                self._before = _copies(self._torch, tensors)
            return False
        use = self._restore if self._restores else self._keep
        kept = use(path, unit, tensors)
        if kept is None:
            return False
        self._before, self.since = kept, unit
        return True

    def _keep(self, path: str, unit: int, tensors: dict[str, Tensor]) -> dict[str, Tensor] | None:
        if self._kept is None:
            self._kept = self._room(tensors)
        first, every = self._kept
        if not every or unit < first or unit % every:
            return None
        copies = _copies(self._torch, tensors)
        self._torch.save(copies, path)
        return copies

    def _room(self, tensors: dict[str, Tensor]) -> tuple[int, int]:
        """The first unit whose state is kept, and the units from one to the next: 0 for none."""
        size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        room = min(_MOST_BYTES, shutil.disk_usage(self._folder).free // 2)
        possible = (self._step, *(n for n in _DISTANCES if n % self._step == 0))
        for first in (0, self._events):
            for every in possible:
                if size * ((self._until - first) // every + (first > 0)) <= room:
                    return first, every
        return 0, 0

    def _restore(
        self, path: str, unit: int, tensors: dict[str, Tensor]
    ) -> dict[str, Tensor] | None:
        if not os.path.exists(path):
            return None
        torch = self._torch
        kept: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
        # Alike on all ranks. PyTorch takes 32 bits of a seed.
        generator = torch.Generator(device="cpu").manual_seed(unit + (self._rounds << 20))
        with torch.no_grad():
            for name, tensor in tensors.items():
                value = kept.get(name)
                if value is None or value.shape != tensor.shape:
                    continue
                if self._rounds and tensor.requires_grad and value.is_floating_point():
                    kept[name] = value = self._rounded(value, generator, self._units_off(tensor))
                tensor.detach().copy_(value)
        return kept

    def _rounded(self, value: Tensor, generator: Any, units: int) -> Tensor:
        """With each element off by some units in its last place, up or down.

        From equal bits the kernels of eager runs compute equal bits, and hide which gradients are
        nothing but rounding: that of a bias in front of a batch normalization is zero. A kernel
        that adds in another order gets another one.
        """
        torch = self._torch
        up = torch.randint(2, value.shape, generator=generator, device="cpu").to(value.dtype)
        unit = float(torch.finfo(value.dtype).eps)
        return value * (1 + units * unit * (2 * up - 1))

    def _units_off(self, parameter: Tensor) -> int:
        """A kernel that computes in TF32 leaves 13 bits of each factor out: it is far from one that
        keeps them, and eight units in the last place hardly change what it computes."""
        torch = self._torch
        if parameter.is_cuda and parameter.dtype == torch.float32 and parameter.dim() > 1:
            what = "matmul" if parameter.dim() == 2 else "conv"
            if _precision(torch, what) == "tf32":
                return _UNITS_OFF_IN_TF32
        return _UNITS_OFF.get(parameter.dtype.itemsize, 1)


def _precision(torch: Torch, what: str) -> str:
    """Of the float32 products of an operation, "matmul" or "conv", on the GPU."""
    get = getattr(torch._C, "_get_fp32_precision_getter", None)
    if get is not None:
        return str(get("cuda", what))
    backends = torch.backends
    allowed = backends.cudnn.allow_tf32 if what == "conv" else backends.cuda.matmul.allow_tf32
    return "tf32" if allowed else "ieee"


def _copies(torch: Torch, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """On the CPU, without the gaps of views."""
    copies = {name: t.detach().to("cpu", copy=True) for name, t in tensors.items()}
    return {name: t.clone(memory_format=torch.contiguous_format) for name, t in copies.items()}
