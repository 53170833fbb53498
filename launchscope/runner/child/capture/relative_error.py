"""How much two versions of a state differ, as a multiple of what the step changed."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from launchscope.runner.child.capture.state import Saved
from launchscope.runner.child.plain_values import loaded_torch
from launchscope.runner.child.torch_types import DType, Tensor

# Norms are computed over chunks of this many elements, which bounds their memory.
_CHUNK = 2**22
# A difference from something that did not change is infinite; JSON has no infinity.
_LARGEST = 1e6

# Flat tensors: one, the other, and for some a square by whose root each element counts.
_Pairs: TypeAlias = Sequence[tuple[Tensor, ...]]


def of_update(
    before: dict[int, Saved], after: dict[int, Saved], reference: dict[int, Saved] | None = None
) -> float | None:
    """How far the live state is from `reference` (None: from `after`), per update of one step.

    The step took the state from `before` to `after`. The largest value of each group of
    parameters and of everything else: a learning rate a thousand times smaller must not hide a
    wrong update. None if the step changed nothing.

    Adam and its like divide each element of an update by the root of its mean squared gradient
    (Kingma and Ba 2015, algorithm 1): where the gradient is hardly more than rounding, the update
    may go up as well as down. So elements of a parameter count by that root, relative to those of
    the same parameter.
    """
    results: dict[int | None, list[tuple[Tensor, ...]]] = defaultdict(list)
    updates: dict[int | None, list[tuple[Tensor, ...]]] = defaultdict(list)
    wanted = after if reference is None else reference
    for address, end in after.items():
        start, other = before.get(address), wanted.get(address)
        if start is None or other is None or len(start.copy) != len(end.copy):
            continue
        group = end.group
        if group is not None and not _is_wide(end.dtype):
            group = 0  # rounding is too large a share of what a small group moves
        squares = () if end.squares is None or not _is_wide(end.dtype) else (end.squares,)
        for pairs, sides in (updates, (end.copy, start.copy)), (results, (end.live, other.copy)):
            pairs[group].append(tuple(_typed(side, end.dtype) for side in (*sides, *squares)))
    differences = {
        group: squared_norms(pairs, rounded=group is not None)[0]
        for group, pairs in results.items()
    }
    if not any(differences.values()):
        return 0.0 if any(map(_moved, updates.values())) else None
    moved = {group: _moved(pairs) for group, pairs in updates.items()}
    if not any(moved.values()):
        return None
    return max(_relative(differences[group], moved[group]) for group in results)


def _moved(pairs: _Pairs) -> float:
    return squared_norms(pairs, finite=True)[0]


def of_outputs(pairs: list[tuple[Tensor, Tensor]]) -> float | None:
    """The difference of pairs (replayed, eager) of flat tensors, relative to the eager ones.

    None if there are no pairs.
    """
    return _relative(*squared_norms(pairs)) if pairs else None


def squared_norms(
    pairs: _Pairs, *, rounded: bool = False, finite: bool = False
) -> tuple[float, float]:
    """The squared norms of the difference of pairs of flat tensors, and of the second ones. The
    latter only counts pairs that are equal where others differ.

    With `finite`, other numbers count as 0. With `rounded`, numbers of 32 and 64 bits that differ
    in their last bit are equal: in a group of parameters that hardly moves, one such bit would
    look like a wrong update. With fewer bits the last one can be a whole update, so every
    difference counts.
    """
    torch = loaded_torch()
    difference = size = 0.0
    equal = []
    for parts in _chunks(pairs):
        one, other, *squares = (torch.cat(side) for side in zip(*parts))
        other = other.to(one.device)
        # Mostly so. The first use of each further kernel would take milliseconds.
        if not finite and one.dtype == other.dtype and torch.equal(one, other):
            equal.append(parts)
            continue
        dtype = one.dtype
        one, other = _wide(one), _wide(other)
        if finite:
            gap = _finite(one) - _finite(other)
        else:
            same = (one == other) | (one.isnan() & other.isnan())  # also the same infinity or NaN
            gap = (one - other).abs().masked_fill(same, 0.0)
            gap = gap.nan_to_num(nan=math.inf, posinf=math.inf)
        if rounded and _is_wide(dtype):
            gap = gap.masked_fill(gap <= torch.finfo(dtype).eps * _finite(other).abs(), 0.0)
        for square in squares:
            weighted = gap * square.to(gap).sqrt()
            gap = weighted.masked_fill(gap.isinf(), math.inf)  # also beside a weight of 0
        difference += _square(gap)
        size += _square(_finite(other))
    if difference:
        others = [_wide(torch.cat([other for _, other, *_ in parts])) for parts in equal]
        size += sum(_square(_finite(other)) for other in others)
    return difference, size


def _relative_to_mean(squares: Tensor) -> Iterator[Tensor]:
    """Chunks of squares divided by the mean of all; ones where there is none to divide by."""
    mean = squares.mean()
    usable = mean.isfinite() & (mean > 0)
    for part in squares.split(_CHUNK):
        yield (part.clamp_min(0) / mean).where(usable, mean.new_ones(()))


def _wide(values: Tensor) -> Tensor:
    torch = loaded_torch()
    return values.to(torch.complex128 if values.dtype.is_complex else torch.float64)


def _chunks(pairs: _Pairs) -> Iterator[_Pairs]:
    """Parts of the pairs, of the same types and devices, that fill a chunk together.

    A model has hundreds of small tensors, and each alone would cost a dozen launches and a
    synchronization.
    """
    waiting: dict[object, list[tuple[Tensor, ...]]] = defaultdict(list)
    elements: Counter[object] = Counter()
    for pair in pairs:
        kind = tuple((side.dtype, side.device) for side in pair)
        one, other, *squares = pair
        relative = (_relative_to_mean(side) for side in squares)
        for parts in zip(one.split(_CHUNK), other.split(_CHUNK), *relative):
            waiting[kind].append(parts)
            elements[kind] += len(parts[0])
            if elements[kind] >= _CHUNK:
                elements[kind] = 0
                yield waiting.pop(kind)
    yield from waiting.values()


def _relative(difference: float, size: float) -> float:
    """The ratio of two norms, both given as their squares."""
    if difference == 0.0:
        return 0.0
    return min(math.sqrt(difference / size), _LARGEST) if size > 0 else _LARGEST


def _typed(data: Tensor, dtype: DType) -> Tensor:
    """Bytes as numbers of this type; unchanged if the type is unknown or does not fit."""
    if dtype is None or len(data) % dtype.itemsize:
        return data
    return data.view(dtype)


def _is_wide(dtype: DType) -> bool:
    torch = loaded_torch()
    return dtype in (torch.float32, torch.float64)


def _finite(values: Tensor) -> Tensor:
    return values.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def _square(values: Tensor) -> float:
    return float(values.abs().square().sum().item())
