"""How much of a device a kernel's blocks take, from what Kineto records with its launch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
import numpy as np

from launchscope.parser.trace import Ints

WHOLE = 1_000_000  # of `share_ppm`: enough blocks to fill the device

# Resident blocks per multiprocessor, and shared memory that the driver reserves in each block, from
# the technical specifications in the CUDA programming guide for 8.0 and 9.0; the trace has the
# other limits.
_MOST_BLOCKS = 32
_RESERVED_BYTES = 1024

_Amount = Annotated[float, msgspec.Meta(ge=0, lt=1e12)]
_Positive = Annotated[float, msgspec.Meta(gt=0, lt=1e12)]


class _Limits(msgspec.Struct):
    """The limits of one multiprocessor."""

    registers: _Positive = msgspec.field(name="regsPerMultiprocessor")
    shared: _Positive = msgspec.field(name="sharedMemPerMultiprocessor")
    threads: _Positive = msgspec.field(name="maxThreadsPerMultiprocessor")
    warp: _Positive = msgspec.field(name="warpSize")


def shares_ppm(shapes: Iterable[tuple[Any, ...]], properties: dict[str, Any]) -> Ints:
    """The share that each launch shape (blocks, warps, registers, shared memory) takes of the
    device's room for blocks, in millionths, at most `WHOLE`; -1 where it is unknown.

    Room is what registers, shared memory and threads of all multiprocessors leave for blocks of
    this kind, as in NVIDIA's occupancy calculation, without its rounding.
    """
    shares = []
    for shape in shapes:
        try:
            blocks, warps = msgspec.convert(shape[:2], tuple[_Positive, _Positive])
            registers, shared = msgspec.convert(shape[2:], tuple[_Amount, _Amount])
            limits = msgspec.convert(properties, _Limits)
        except msgspec.ValidationError:
            shares.append(-1)
            continue
        per_block = max(round(warps / blocks), 1) * limits.warp
        room = min(
            _MOST_BLOCKS,
            limits.threads // per_block,
            limits.registers // (max(registers, 1) * per_block),
            limits.shared // (shared + _RESERVED_BYTES),
        )
        shares.append(int(min(blocks / max(room, 1), 1.0) * WHOLE))
    return np.asarray(shares, np.int64)
