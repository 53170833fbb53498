"""How much two versions of a state differ, as a multiple of what the step changed."""

from __future__ import annotations

import math
from collections import defaultdict

from launchscope.runner.child.capture.state import Saved
from launchscope.runner.child.facts.plain_values import loaded_torch
from launchscope.runner.child.facts.torch_types import DType, Tensor

# A difference from something that did not change is infinite; JSON has no infinity.
_LARGEST = 1e6

# A storage as the step left it, what it should be now, and what it was before the step.
_Change = tuple[Saved, Saved, Saved]


def of_update(
    before: dict[int, Saved], after: dict[int, Saved], reference: dict[int, Saved] | None = None
) -> float | None:
    """How far the live state is from `reference` (None: from `after`), per update of one step.

    The step took the state from `before` to `after`. The largest value of each group of
    parameters and of everything else: a learning rate a thousand times smaller must not hide a
    wrong update. None if the step changed nothing.
    """
    groups: dict[int | None, list[_Change]] = defaultdict(list)
    for address, end in after.items():
        start, wanted = before.get(address), (reference or after).get(address)
        if start and wanted and len(start.copy) == len(end.copy):
            # Of few bits, rounding is too large a share of what a small group moves.
            group = end.group if end.group is None or _is_wide(end.dtype) else 0
            groups[group].append((end, wanted, start))
    if all(_equal(end.copy, start.copy) for group in groups.values() for end, _, start in group):
        return None
    return max(_of_group(group, rounded=number is not None) for number, group in groups.items())


def of_outputs(pairs: list[tuple[Tensor, Tensor]]) -> float | None:
    """The difference of pairs (replayed, eager) of flat tensors, relative to the eager ones.

    None if there are no pairs.
    """
    if not pairs:
        return None
    difference = math.hypot(*(_norm(gap(one, other.to(one.device))) for one, other in pairs))
    return _ratio(difference, math.hypot(*(_norm(_finite(other)) for _, other in pairs)))


def _of_group(changes: list[_Change], *, rounded: bool) -> float:
    if all(_equal(end.live, wanted.copy) for end, wanted, _ in changes):
        return 0.0
    differences, moves = [], []
    for end, wanted, start in changes:
        sides = end.live, wanted.copy, end.copy, start.copy
        live, correct, to, since = (_typed(side.to(end.live.device), end.dtype) for side in sides)
        differences.append(_norm(gap(live, correct, rounded=rounded)))
        moves.append(_norm(_finite(to) - _finite(since)))
    return _ratio(math.hypot(*differences), math.hypot(*moves))


def gap(one: Tensor, other: Tensor, *, rounded: bool = False) -> Tensor:
    """How far apart numbers are: infinitely where only one of them is infinite or none.

    With `rounded`, numbers of 32 and 64 bits that differ in their last bit are equal: in a group of
    parameters that hardly moves, one such bit would look like a wrong update.
    """
    last_bit = loaded_torch().finfo(one.dtype).eps if rounded and _is_wide(one.dtype) else 0.0
    one, other = _wide(one), _wide(other)
    same = (one == other) | (one.isnan() & other.isnan())  # also the same infinity
    apart = (one - other).abs().masked_fill(same, 0.0).nan_to_num(math.inf, math.inf)
    return apart.masked_fill(apart <= last_bit * _finite(other).abs(), 0.0)


def _equal(one: Tensor, other: Tensor) -> bool:
    return bool(loaded_torch().equal(one, other.to(one.device)))


def _ratio(difference: float, size: float) -> float:
    if difference == 0.0:
        return 0.0
    return min(difference / size, _LARGEST) if size > 0 else _LARGEST


def _typed(data: Tensor, dtype: DType) -> Tensor:
    """Bytes as numbers of this type; unchanged if the type is unknown or does not fit."""
    return data if dtype is None or len(data) % dtype.itemsize else data.view(dtype)


def _wide(values: Tensor) -> Tensor:
    """As numbers whose differences can be taken: of few bits and integers as doubles."""
    wide = _is_wide(values.dtype) or values.dtype.is_complex
    return values if wide else values.double()


def _is_wide(dtype: DType) -> bool:
    torch = loaded_torch()
    return dtype in (torch.float32, torch.float64)


def _finite(values: Tensor) -> Tensor:
    return _wide(values).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def _norm(values: Tensor) -> float:
    """In double precision, where squares of small numbers are not lost."""
    torch = loaded_torch()
    wide = torch.complex128 if values.is_complex() else torch.float64
    return float(torch.linalg.vector_norm(values, dtype=wide))
