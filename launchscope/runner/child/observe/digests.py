"""What a tensor holds, in a few numbers: whether two hold the same bits, and how far two differ.

Both are computed on the tensor's device, draw no random numbers and do not depend on the order of
additions where that could differ between two processes.
"""

from __future__ import annotations

import zlib
from typing import Any

from launchscope.runner.child.torch_types import Tensor, Torch

# A count sketch (Charikar, Chen, Farach-Colton 2002): each element is added, with a sign of its
# own, to one of so many sums. The norm of the difference of two sketches is that of the tensors,
# within about sqrt(2 / BUCKETS) of it.
BUCKETS = 32
_AT_ONCE = 1 << 22  # elements, so that little memory is needed
_ODD = 0x9E3779B1  # 2**32 divided by the golden ratio, which spreads neighbors (Knuth)
_MASK = (1 << 62) - 1


def digest(torch: Torch, tensor: Tensor) -> int:
    """A number of the tensor's bits and shape. Equal bits give equal numbers; other bits give
    another one, except by an accident of 1 in 2**60."""
    with torch.no_grad(), torch._C.DisableTorchFunction():
        flat = _flat(torch, tensor)
        total = zlib.crc32(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        for start in range(0, flat.numel(), _AT_ONCE):
            part = flat[start : start + _AT_ONCE].to(torch.int64)
            places = torch.arange(start, start + part.numel(), device=part.device)
            # Products and sums of whole numbers wrap around, so their order does not matter.
            mixed = (part + 1) * ((places * 2 + 1) * _ODD + 1)
            mixed = mixed ^ (mixed >> 29)
            total = (total * 31 + int((mixed * 0x2545F4914F6CDD1D).sum().item())) & _MASK
        return total


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


def sketch(torch: Torch, tensor: Tensor) -> tuple[float, ...]:
    """`BUCKETS` sums in double precision."""
    with torch.no_grad(), torch._C.DisableTorchFunction():
        found = tensor.detach()
        if found.is_complex():
            found = torch.view_as_real(found)
        flat = found.reshape(-1)
        sums = torch.zeros(BUCKETS, dtype=torch.float64, device=flat.device)
        for start in range(0, flat.numel(), _AT_ONCE):
            part = flat[start : start + _AT_ONCE].to(torch.float64)
            places = torch.arange(start, start + part.numel(), device=part.device)
            signs = 1 - (((places * _ODD) >> 15) & 1) * 2
            spare = -part.numel() % BUCKETS
            signed = torch.nn.functional.pad(part * signs, (0, spare))
            sums += signed.view(-1, BUCKETS).sum(0)
        result: list[float] = sums.tolist()
        return tuple(value if value == value and abs(value) != float("inf") else 1e300
                     for value in result)  # fmt: skip


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
