"""What a tensor holds, in a few numbers: whether two hold the same bits, and how far two differ.

Both are computed on the tensor's device, draw no random numbers and do not depend on the order of
additions where that could differ between two processes.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from launchscope.runner.child.facts.torch_types import Tensor, Torch

# A count sketch (Charikar, Chen, Farach-Colton 2002): each element is added, with a sign of its
# own, to one of so many sums. The norm of the difference of two sketches is that of the tensors,
# within about sqrt(2 / BUCKETS) of it.
BUCKETS = 16
NOT_FINITE = 1e300  # in the place of an infinite value and of NaN, which JSON cannot hold
_AT_ONCE = 1 << 22  # elements, so that little memory is needed
_ODD = 0x9E3779B1  # 2**32 divided by the golden ratio, which spreads neighbors (Knuth)
_MIXING = 0x2545F4914F6CDD1D

Digest = tuple[int, tuple[float, ...]]


def digests(torch: Torch, tensors: Sequence[Tensor]) -> list[Digest]:
    """Of each tensor a number of its bytes, dtype and shape, and `BUCKETS` sums. Equal bits give an
    equal number, and other bits another one but by an accident of 1 in 2**60. The host waits once
    for each device."""
    with torch.no_grad(), torch._C.DisableTorchFunction():
        rows = [_row(torch, tensor) for tensor in tensors]
    found: dict[int, Digest] = {}
    for device in {row.device for row in rows}:
        places = [place for place, row in enumerate(rows) if row.device == device]
        block = torch.stack([rows[place] for place in places]).cpu()
        sums = block[:, 1:].view(torch.float64)
        sums = torch.nan_to_num(sums, NOT_FINITE, NOT_FINITE, NOT_FINITE).tolist()
        for place, number, sketch in zip(places, block[:, 0].tolist(), sums):
            found[place] = number, tuple(sketch)
    return [found[place] for place in range(len(rows))]


def _row(torch: Torch, tensor: Tensor) -> Tensor:
    """The number, and the bits of the sums."""
    flat = _numbers(torch, tensor)
    kind = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
    bits = flat.view(kind) if flat.is_floating_point() else flat
    seed = zlib.crc32(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
    number = torch.full((1,), seed, dtype=torch.int64, device=flat.device)
    sums = torch.zeros(BUCKETS, dtype=torch.float64, device=flat.device)
    for some, values in zip(bits.split(_AT_ONCE), flat.split(_AT_ONCE)):
        places = torch.arange(some.numel(), device=flat.device)
        # Products and sums of whole numbers wrap around, so their order does not matter.
        mixed = (some.to(torch.int64) + 1) * ((places * 2 + 1) * _ODD + 1)
        number = number * 31 + (mixed ^ (mixed >> 29)).sum() * _MIXING
        signs = 1 - (((places * _ODD) >> 15) & 1) * 2
        padding = 0, -some.numel() % BUCKETS
        signed = torch.nn.functional.pad(values.to(torch.float64) * signs, padding)
        sums += signed.view(-1, BUCKETS).sum(0)
    return torch.cat([number, sums.view(torch.int64)])


def _numbers(torch: Torch, tensor: Tensor) -> Tensor:
    found = tensor.detach().resolve_conj().resolve_neg()
    if found.is_complex():
        found = torch.view_as_real(found)
    if found.is_quantized:
        found = found.int_repr()
    return found.reshape(-1).contiguous()
