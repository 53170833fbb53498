"""How far apart two versions of a state are, in units of what the step changed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from launchscope.runner.child.capture.state import Saved

# Norms are taken over pieces of this many elements, which bounds the memory they need.
_PIECE = 2**22
# Of what did not move at all every difference is infinitely many times; JSON has no infinity.
_FARTHEST = 1e6


class RelativeError:
    """Sums of squares over tensors: how far apart, how far both moved, how large.

    Tensors are taken together until they make a piece: a model has hundreds of small ones,
    and one by one each would cost a dozen launches and a wait. With `rounded`, numbers of 32 and
    64 bits that differ by their last bit are the same: in a group of parameters that hardly
    moves, one such bit would be taken for a wrong update. In fewer bits a whole update can be
    the last, so there every difference counts.
    """

    def __init__(self, *, rounded: bool = False) -> None:
        self._rounded = rounded
        self._apart = self._moved = self._size = 0.0
        self._waiting: dict[Any, list[tuple[Any, ...]]] = {}
        self._elements: dict[Any, int] = {}

    def add(self, one: Any, other: Any, start: Any = None) -> None:
        """Two flat tensors of one dtype and, if the step changed them, where they started."""
        given = (one, other) if start is None else (one, other, start)
        kind = tuple((tensor.dtype, tensor.device) for tensor in given)
        for begin in range(0, other.numel(), _PIECE):
            pieces = tuple(tensor[begin : begin + _PIECE] for tensor in given)
            self._waiting.setdefault(kind, []).append(pieces)
            self._elements[kind] = self._elements.get(kind, 0) + len(pieces[0])
            if self._elements[kind] >= _PIECE:
                self._take(kind)

    def _take(self, kind: Any) -> None:
        import torch

        device = kind[0][1]
        pieces = self._waiting.pop(kind)
        self._elements[kind] = 0
        left, right, *start = (
            _numbers(torch.cat(parts), device) for parts in zip(*pieces, strict=True)
        )
        gap = _gap(left, right)
        if self._rounded and _is_wide(kind[0][0]):
            gap = gap.masked_fill(gap <= torch.finfo(kind[0][0]).eps * _finite(right).abs(), 0.0)
        self._apart += _square(gap)
        self._size += _square(_finite(right))
        if start:
            self._moved += _square(_finite(right) - _finite(start[0]))

    def _take_all(self) -> None:
        for kind in list(self._waiting):
            self._take(kind)

    @property
    def moved(self) -> float:
        """Square of the length of the moves."""
        self._take_all()
        return self._moved

    def relative_to(self, squared: float) -> float:
        """Distance relative to a length given squared; 0 where nothing is apart."""
        self._take_all()
        return _ratio(self._apart, squared)

    @property
    def of_size(self) -> float:
        """Distance relative to the size of what was compared with."""
        self._take_all()
        return _ratio(self._apart, self._size)


class Update:
    """The change of a step's state, compared with that of another run of the same step."""

    def __init__(self, before: dict[int, Saved], after: dict[int, Saved]):
        self._before = before
        self._after = after

    def difference(self, reference: dict[int, Saved] | None = None) -> float | None:
        """Of the live state against `reference` (None: after the step), relative to the update.

        The largest of those of each group of parameters and of everything else: a learning
        rate a thousand times smaller must not hide a wrong update. None if the step changed
        nothing: then there is no update to compare.
        """
        groups: dict[int | None, RelativeError] = {}
        moves: dict[int | None, RelativeError] = {}
        for address, after in self._after.items():
            before = self._before.get(address)
            against = after if reference is None else reference.get(address)
            if before is None or against is None or len(before.copy) != len(after.copy):
                continue
            live, start, end, other = (
                _typed(part, after.dtype)
                for part in (after.live, before.copy, after.copy, against.copy)
            )
            group = after.group
            if group is not None and not _is_wide(after.dtype):
                group = 0  # rounding is too much of what a small group moves
            moves.setdefault(group, RelativeError()).add(end, end, start)
            groups.setdefault(group, RelativeError(rounded=group is not None)).add(live, other)
        if not any(move.moved for move in moves.values()):
            return None
        return max(apart.relative_to(moves[group].moved) for group, apart in groups.items())


def of_outputs(pairs: Iterable[tuple[Any, Any]]) -> float | None:
    """Of pairs (replayed, eager) of flat tensors, relative to eager's size; None without any."""
    whole, seen = RelativeError(), False
    for replayed, eager in pairs:
        whole.add(replayed, eager)
        seen = True
    return whole.of_size if seen else None


def _typed(data: Any, dtype: Any) -> Any:
    """Bytes as numbers of this type; as they are where it is unknown or does not fit."""
    if dtype is None or len(data) % dtype.itemsize:
        return data
    return data.view(dtype)


def _is_wide(dtype: Any) -> bool:
    import torch

    return dtype in (torch.float32, torch.float64)


def _numbers(piece: Any, device: Any) -> Any:
    import torch

    wide = torch.complex128 if piece.is_complex() else torch.float64
    return piece.to(device=device, dtype=wide)


def _gap(one: Any, other: Any) -> Any:
    """The difference; none where both are the same infinity or NaN, infinite where one of them is
    no number."""
    same = (one == other) | (one.isnan() & other.isnan())
    return (one - other).abs().masked_fill(same, 0.0).nan_to_num(nan=math.inf, posinf=math.inf)


def _finite(values: Any) -> Any:
    return values.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def _square(values: Any) -> float:
    return float(values.abs().square().sum().item())


def _ratio(apart: float, whole: float) -> float:
    if apart == 0.0:
        return 0.0
    return min(math.sqrt(apart / whole), _FARTHEST) if whole > 0 else _FARTHEST
