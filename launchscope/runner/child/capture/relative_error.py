"""How much two versions of a state differ, as a multiple of what the step changed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

from launchscope.runner.child.capture.state import Saved
from launchscope.runner.child.torch_types import Device, DType, Tensor

# Norms are computed over chunks of this many elements, which bounds their memory.
_CHUNK = 2**22
# A difference from something that did not change is infinite; JSON has no infinity.
_LARGEST = 1e6

_Kind: TypeAlias = tuple[tuple[DType, Device], tuple[DType, Device]]


class RelativeError:
    """The norm of the difference of pairs of tensors, relative to another norm.

    Tensors are collected until they fill a chunk: a model has hundreds of small ones, and each
    alone would cost a dozen launches and a synchronization. With `finite`, other numbers count
    as 0. With `rounded`, numbers of 32 and 64 bits that differ in their last bit are equal: in a
    group of parameters that hardly moves, one such bit would look like a wrong update. With
    fewer bits the last one can be a whole update, so every difference counts.
    """

    def __init__(self, *, rounded: bool = False, finite: bool = False) -> None:
        self._rounded = rounded
        self._finite = finite
        self._difference = self._size = 0.0
        self._waiting: dict[_Kind, list[tuple[Tensor, Tensor]]] = {}
        self._elements: Counter[_Kind] = Counter()

    def add(self, one: Tensor, other: Tensor) -> None:
        """Two flat tensors of one dtype."""
        kind = (one.dtype, one.device), (other.dtype, other.device)
        for begin in range(0, other.numel(), _CHUNK):
            end = begin + _CHUNK
            self._waiting.setdefault(kind, []).append((one[begin:end], other[begin:end]))
            self._elements[kind] += len(one[begin:end])
            if self._elements[kind] >= _CHUNK:
                self._sum(kind)

    def _sum(self, kind: _Kind) -> None:
        import torch

        dtype, device = kind[0]
        self._elements[kind] = 0
        one, other = (
            _numbers(torch.cat(parts), device)
            for parts in zip(*self._waiting.pop(kind), strict=True)
        )
        if self._finite:
            one, other = _finite(one), _finite(other)
        gap = _gap(one, other)
        if self._rounded and _is_wide(dtype):
            gap = gap.masked_fill(gap <= torch.finfo(dtype).eps * _finite(other).abs(), 0.0)
        self._difference += _square(gap)
        self._size += _square(_finite(other))

    def _sum_all(self) -> None:
        for kind in list(self._waiting):
            self._sum(kind)

    @property
    def square(self) -> float:
        """Square of the norm of the difference."""
        self._sum_all()
        return self._difference

    def relative_to(self, square: float | None = None) -> float:
        """Relative to a norm given as its square; None: to the norm of the second tensors."""
        self._sum_all()
        whole = self._size if square is None else square
        if self._difference == 0.0:
            return 0.0
        return min(math.sqrt(self._difference / whole), _LARGEST) if whole > 0 else _LARGEST


class Update:
    """What a step changed in its state, to compare with another run of the same step."""

    def __init__(self, before: dict[int, Saved], after: dict[int, Saved]):
        self._before = before
        self._after = after

    def difference(self, reference: dict[int, Saved] | None = None) -> float | None:
        """How far the live state is from `reference` (None: after the step), per update.

        The largest value of each group of parameters and of everything else: a learning rate a
        thousand times smaller must not hide a wrong update. None if the step changed nothing.
        """
        differences: dict[int | None, RelativeError] = {}
        moves: dict[int | None, RelativeError] = {}
        for address, after in self._after.items():
            before = self._before.get(address)
            wanted = after if reference is None else reference.get(address)
            if before is None or wanted is None or len(before.copy) != len(after.copy):
                continue
            live, start, end, other = (
                _typed(part, after.dtype)
                for part in (after.live, before.copy, after.copy, wanted.copy)
            )
            group = after.group
            if group is not None and not _is_wide(after.dtype):
                group = 0  # rounding is too large a share of what a small group moves
            moves.setdefault(group, RelativeError(finite=True)).add(end, start)
            rounded = group is not None
            differences.setdefault(group, RelativeError(rounded=rounded)).add(live, other)
        if not any(move.square for move in moves.values()):
            return None
        return max(error.relative_to(moves[group].square) for group, error in differences.items())


def of_outputs(pairs: Iterable[tuple[Tensor, Tensor]]) -> float | None:
    """The difference of pairs (replayed, eager) of flat tensors, relative to the eager ones.

    None if there are no pairs.
    """
    error, any_pair = RelativeError(), False
    for replayed, eager in pairs:
        error.add(replayed, eager)
        any_pair = True
    return error.relative_to() if any_pair else None


def _typed(data: Tensor, dtype: DType) -> Tensor:
    """Bytes as numbers of this type; unchanged if the type is unknown or does not fit."""
    if dtype is None or len(data) % dtype.itemsize:
        return data
    return data.view(dtype)


def _is_wide(dtype: DType) -> bool:
    import torch

    return dtype in (torch.float32, torch.float64)


def _numbers(chunk: Tensor, device: Device) -> Tensor:
    import torch

    wide = torch.complex128 if chunk.is_complex() else torch.float64
    return chunk.to(device=device, dtype=wide)


def _gap(one: Tensor, other: Tensor) -> Tensor:
    """The absolute difference: 0 for the same infinity or NaN on both sides, infinite for one that
    is not finite against anything else."""
    same = (one == other) | (one.isnan() & other.isnan())
    return (one - other).abs().masked_fill(same, 0.0).nan_to_num(nan=math.inf, posinf=math.inf)


def _finite(values: Tensor) -> Tensor:
    return values.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def _square(values: Tensor) -> float:
    return float(values.abs().square().sum().item())
