"""How much of a device a kernel's blocks take, from what Kineto says of its launch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from launchscope.parser.trace import Ints

WHOLE = 1_000_000  # of `share_ppm`: blocks enough to fill the device

# Resident blocks per multiprocessor and shared memory that the driver keeps of each block, as
# the CUDA programming guide's table of technical specifications has them for 8.0 and 9.0; the
# other limits stand in the trace.
_MOST_BLOCKS = 32
_RESERVED_BYTES = 1024


class LaunchShapes:
    """The distinct shapes of launches: few, however many kernels there are.

    The device's limits may stand behind the events, so that rows hold a shape's number until
    the whole file is read.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[Any, ...], int] = {}

    def numbers(self, args: Iterable[Any]) -> Ints:
        """The number of each launch's shape; -1 for one that is no shape at all."""
        found = []
        for arg in args:
            shape = (arg.blocks, arg.warps, arg.registers, arg.shared)
            try:
                found.append(self._numbers.setdefault(shape, len(self._numbers)))
            except TypeError:  # a list where a number belongs
                found.append(-1)
        return np.asarray(found, np.int64)

    def shares_ppm(self, numbers: Ints, properties: Any) -> Ints:
        """Of shape numbers: the share of the device's room for blocks, in millionths, at most
        `WHOLE`; -1 where shape or limits are not known.

        Room is what registers, shared memory and threads of all multiprocessors leave for
        blocks of this kind, as in NVIDIA's occupancy calculation, without its rounding.
        """
        limits = _limits(properties)
        shares = [-1 if limits is None else _share_ppm(shape, *limits) for shape in self._numbers]
        found: Ints = np.asarray([*shares, -1], np.int64)[numbers]
        return found


def _limits(properties: Any) -> tuple[float, float, float, float] | None:
    """Registers, bytes of shared memory and threads per multiprocessor, and threads per warp."""
    first = properties[0] if isinstance(properties, list) and properties else None
    if not isinstance(first, dict):
        return None
    names = (
        "regsPerMultiprocessor", "sharedMemPerMultiprocessor", "maxThreadsPerMultiprocessor",
        "warpSize",
    )  # fmt: skip
    registers, shared, threads, warp = (first.get(name, 0) for name in names)
    if not all(_is_number(value) and value > 0 for value in (registers, shared, threads, warp)):
        return None
    return registers, shared, threads, warp


def _share_ppm(
    shape: tuple[Any, ...], registers: float, shared: float, threads: float, warp: float
) -> int:
    if not all(_is_number(value) for value in shape):
        return -1
    blocks, warps, registers_each, shared_each = shape
    if blocks <= 0 or warps <= 0 or registers_each < 0 or shared_each < 0:
        return -1
    per_block = max(round(warps / blocks), 1) * warp
    room = min(
        _MOST_BLOCKS,
        threads // per_block,
        registers // (max(registers_each, 1) * per_block),
        shared // (shared_each + _RESERVED_BYTES),
    )
    return int(min(blocks / max(room, 1), 1.0) * WHOLE)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and type(value) is not bool and 0 <= value < 1e12
