"""What a tensor holds, in a few numbers: whether two hold the same bits, and how far two differ.

Both are computed on the tensor's device, draw no random numbers and do not depend on the order of
additions where that could differ between two processes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from launchscope.runner.child.torch_types import Tensor, Torch

# A count sketch (Charikar, Chen, Farach-Colton 2002): each element is added, with a sign of its
# own, to one of so many sums. The norm of the difference of two sketches is that of the tensors,
# within about sqrt(2 / BUCKETS) of it.
BUCKETS = 32
_AT_ONCE = 1 << 22  # elements, so that little memory is needed
_ODD = 0x9E3779B1  # 2**32 divided by the golden ratio, which spreads neighbors (Knuth)
_MASK = (1 << 62) - 1


class Digests:
    """Digests and sketches of many tensors, for which the host waits once. What depends only on the
    places of elements is kept for the next tensors."""

    def __init__(self, torch: Torch):
        self._torch = torch
        self._factors: dict[Any, tuple[Tensor, Tensor]] = {}  # by device

    def digests(self, tensors: Sequence[Tensor]) -> list[int]:
        """Numbers of the tensors' bytes and shapes. Equal bits give equal numbers; other bits give
        another one, except by an accident of 1 in 2**60."""
        torch = self._torch
        found = [zlib.crc32(f"{tuple(t.shape)} {t.dtype}".encode()) for t in tensors]
        with torch.no_grad(), torch._C.DisableTorchFunction():
            parts = [(at, sum_) for at, t in enumerate(tensors) for sum_ in self._sums(t)]
            for (at, _), number in zip(parts, self._read([sum_ for _, sum_ in parts])):
                found[at] = (found[at] * 31 + number) & _MASK
        return found

    def _sums(self, tensor: Tensor) -> Iterator[Tensor]:
        flat = _flat(self._torch, tensor)
        for start in range(0, flat.numel(), _AT_ONCE):
            part = flat[start : start + _AT_ONCE].to(self._torch.int64)
            places, _ = self._of_places(part)
            if start:
                places = places + _signed(start * 2 * _ODD)
            # Products and sums of whole numbers wrap around, so their order does not matter.
            mixed = (part + 1) * places
            mixed = mixed ^ (mixed >> 29)
            yield mixed.sum() * 0x2545F4914F6CDD1D

    def sketches(self, tensors: Sequence[Tensor]) -> list[tuple[float, ...]]:
        """`BUCKETS` sums in double precision of each tensor."""
        torch = self._torch
        with torch.no_grad(), torch._C.DisableTorchFunction():
            rows = self._read([self._sketch(tensor) for tensor in tensors])
        return [
            tuple(v if v == v and abs(v) != float("inf") else 1e300 for v in row) for row in rows
        ]

    def _sketch(self, tensor: Tensor) -> Tensor:
        torch, found = self._torch, tensor.detach()
        if found.is_complex():
            found = torch.view_as_real(found)
        flat = found.reshape(-1)
        sums = torch.zeros(BUCKETS, dtype=torch.float64, device=flat.device)
        for start in range(0, flat.numel(), _AT_ONCE):
            part = flat[start : start + _AT_ONCE].to(torch.float64)
            _, signs = self._of_places(part)  # which repeat after so many elements
            signed = torch.nn.functional.pad(part * signs, (0, -part.numel() % BUCKETS))
            sums += signed.view(-1, BUCKETS).sum(0)
        return sums

    def _of_places(self, part: Tensor) -> tuple[Tensor, Tensor]:
        """By element of the part, what it is multiplied with in a digest and in a sketch."""
        torch, count = self._torch, part.numel()
        known = self._factors.get(part.device)
        if known is None or known[0].numel() < count:
            places = torch.arange(count, device=part.device)
            signs = 1 - (((places * _ODD) >> 15) & 1) * 2
            known = (places * 2 + 1) * _ODD + 1, signs.to(torch.float64)
            self._factors[part.device] = known
        return known[0][:count], known[1][:count]

    def _read(self, results: Sequence[Tensor]) -> list[Any]:
        """The values of results of one form, with one copy from each device."""
        of_device: dict[Any, list[int]] = {}
        for at, result in enumerate(results):
            of_device.setdefault(result.device, []).append(at)
        found: list[Any] = [None] * len(results)
        for places in of_device.values():
            values = self._torch.stack([results[at] for at in places]).tolist()
            for at, value in zip(places, values):
                found[at] = value
        return found


def _signed(number: int) -> int:
    """As a whole number of 64 bits wraps around."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _flat(torch: Torch, tensor: Tensor) -> Tensor:
    """Its bits as whole numbers, one for each element or for each half of it."""
    found = tensor.detach()
    if found.is_complex():
        found = torch.view_as_real(found)
    if found.is_quantized:
        found = found.int_repr()
    found = found.reshape(-1).contiguous()
    if found.is_floating_point():
        kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        return found.view(kinds[found.element_size()])
    return found


def tensors_of(torch: Torch, value: Any, found: list[Tensor], depth: int = 0) -> list[Tensor]:
    """The tensors in nested lists, tuples and dicts, in order."""
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif depth < 5 and isinstance(value, list | tuple):
        for part in value:
            tensors_of(torch, part, found, depth + 1)
    elif depth < 5 and isinstance(value, dict):
        for part in value.values():
            tensors_of(torch, part, found, depth + 1)
    return found
