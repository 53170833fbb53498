"""How far apart two versions of a state are, in units of what the step changed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from launchscope.runner.state import Saved

# Norms are taken over pieces of this many elements, which bounds the memory they need.
_PIECE = 2**22


class Apart:
    """Sums of squares over tensors: how far apart, how far both moved, how large."""

    def __init__(self) -> None:
        self.apart = 0.0
        self.moved = 0.0
        self.size = 0.0

    def add(self, one: Any, other: Any, start: Any = None) -> None:
        """Two flat tensors of one dtype and, if the step changed them, where they started."""
        for begin in range(0, other.numel(), _PIECE):
            piece = slice(begin, begin + _PIECE)
            left = _numbers(one[piece], one.device)
            right = _numbers(other[piece], one.device)
            self.apart += _square(left - right)
            self.size += _square(right)
            if start is not None:
                self.moved += _square(right - _numbers(start[piece], one.device))

    @property
    def of_move(self) -> float:
        """Distance relative to the move; 0 where nothing moved and nothing is apart."""
        return _ratio(self.apart, self.moved)

    @property
    def of_size(self) -> float:
        return _ratio(self.apart, self.size)


class Update:
    """The change of a step's state, compared with that of another run of the same step."""

    def __init__(self, before: dict[int, Saved], after: dict[int, Saved]):
        self._before = before
        self._after = after

    def difference(self, reference: dict[int, Saved] | None = None) -> float | None:
        """Of the live state against `reference` (None: after the step), relative to the update.

        The larger of that of the parameters and of everything else. None if the step
        changed nothing: then there is no update to compare.
        """
        groups = {True: Apart(), False: Apart()}
        moved = {True: 0.0, False: 0.0}
        for address, after in self._after.items():
            before = self._before.get(address)
            against = after if reference is None else reference.get(address)
            if before is None or against is None or len(before.copy) != len(after.copy):
                continue
            live, start, end, other = (
                _typed(part, after.dtype)
                for part in (after.live, before.copy, after.copy, against.copy)
            )
            update = Apart()
            update.add(end, end, start)
            moved[after.parameter] += update.moved
            groups[after.parameter].add(live, other)
        if not any(moved.values()):
            return None
        for kind, group in groups.items():
            group.moved = moved[kind]
        return max(group.of_move for group in groups.values())


def of_outputs(pairs: Iterable[tuple[Any, Any]]) -> float | None:
    """Of pairs (replayed, eager) of flat tensors, relative to eager's size; None without any."""
    whole, seen = Apart(), False
    for replayed, eager in pairs:
        whole.add(replayed, eager)
        seen = True
    return whole.of_size if seen else None


def _typed(data: Any, dtype: Any) -> Any:
    """Bytes as numbers of this type; as they are where it is unknown or does not fit."""
    if dtype is None or len(data) % dtype.itemsize:
        return data
    return data.view(dtype)


def _numbers(piece: Any, device: Any) -> Any:
    import torch

    wide = torch.complex128 if piece.is_complex() else torch.float64
    # The same infinity or NaN on both sides is no difference.
    return piece.to(device=device, dtype=wide).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def _square(values: Any) -> float:
    return float(values.abs().square().sum().item())


def _ratio(apart: float, whole: float) -> float:
    if apart == 0.0:
        return 0.0
    return math.sqrt(apart / whole) if whole > 0 else math.inf
