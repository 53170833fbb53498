"""What a tensor holds, in a few numbers: whether two hold the same bits, and how far two differ.

Both are computed on the tensor's device, draw no random numbers and do not depend on the order of
additions where that could differ between two processes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from launchscope.runner.child.facts.torch_types import Tensor, Torch

# A count sketch (Charikar, Chen, Farach-Colton 2002): each element is added, with a sign of its
# own, to one of so many sums. The norm of the difference of two sketches is that of the tensors,
# within about sqrt(2 / BUCKETS) of it.
BUCKETS = 16
NOT_FINITE = 1e300  # in the place of an infinite value and of NaN, which JSON cannot hold
_AT_ONCE = 1 << 22  # elements, so that little memory is needed
_IN_CACHE = 1 << 14  # elements, of a processor
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
        results = []
        with torch.no_grad(), torch._C.DisableTorchFunction():
            for at, start, rows in self._stacked([_flat(torch, t) for t in tensors]):
                part = rows.to(torch.int64)
                places, _ = self._of_places(part)
                if start:
                    places = places + _signed(start * 2 * _ODD)
                # Products and sums of whole numbers wrap around, so their order does not matter.
                mixed = (part + 1) * places
                mixed = mixed ^ (mixed >> 29)
                results.append((at, mixed.sum(1) * 0x2545F4914F6CDD1D))
            for place, number in self._read(results):
                found[place] = (found[place] * 31 + number) & _MASK
        return found

    def sketches(self, tensors: Sequence[Tensor]) -> list[tuple[float, ...]]:
        """`BUCKETS` sums in double precision of each tensor."""
        torch = self._torch
        found = [[0.0] * BUCKETS for _ in tensors]
        results = []
        with torch.no_grad(), torch._C.DisableTorchFunction():
            for at, _, rows in self._stacked([_numbers(torch, t) for t in tensors]):
                part = rows.to(torch.float64)
                _, signs = self._of_places(part)  # which repeat after so many elements
                padding = 0, -part.shape[1] % BUCKETS
                signed = torch.nn.functional.pad(part * signs, padding)
                results.append((at, signed.view(len(at), -1, BUCKETS).sum(1)))
            for place, sums in self._read(results):
                found[place] = [a + b for a, b in zip(found[place], sums)]
        return [
            tuple(v if v == v and abs(v) != float("inf") else NOT_FINITE for v in row)
            for row in found
        ]

    def _stacked(self, flats: Sequence[Tensor]) -> Iterator[tuple[list[int], int, Tensor]]:
        """Rows of elements: of some tensors of one size, with their numbers, or a part of a large
        one, with the element at which it starts. A model has few sizes and many tensors."""
        alike: dict[Any, list[int]] = {}
        for at, flat in enumerate(flats):
            if flat.numel():
                alike.setdefault((flat.device, flat.dtype, flat.numel()), []).append(at)
        for (device, _, size), places in alike.items():
            count = max(1, (_IN_CACHE if device.type == "cpu" else _AT_ONCE) // size)
            for first in range(0, len(places), count):
                some = places[first : first + count]
                for start in range(0, size, _AT_ONCE):
                    rows = [flats[at][start : start + _AT_ONCE] for at in some]
                    yield some, start, self._torch.stack(rows)

    def _of_places(self, part: Tensor) -> tuple[Tensor, Tensor]:
        """By element of a row, what it is multiplied with in a digest and in a sketch."""
        torch, count = self._torch, part.shape[1]
        known = self._factors.get(part.device)
        if known is None or known[0].numel() < count:
            places = torch.arange(count, device=part.device)
            signs = 1 - (((places * _ODD) >> 15) & 1) * 2
            known = (places * 2 + 1) * _ODD + 1, signs.to(torch.float64)
            self._factors[part.device] = known
        return known[0][:count], known[1][:count]

    def _read(self, results: Sequence[tuple[list[int], Tensor]]) -> Iterator[tuple[int, Any]]:
        """The values of rows, each with the number of its tensor; one copy from each device."""
        of_device: dict[Any, list[tuple[list[int], Tensor]]] = {}
        for at, rows in results:
            of_device.setdefault(rows.device, []).append((at, rows))
        for known in of_device.values():
            values = self._torch.cat([rows for _, rows in known]).tolist()
            yield from zip((number for at, _ in known for number in at), values)


def _signed(number: int) -> int:
    """As a whole number of 64 bits wraps around."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _numbers(torch: Torch, tensor: Tensor) -> Tensor:
    found = tensor.detach()
    return (torch.view_as_real(found) if found.is_complex() else found).reshape(-1)


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
