"""Which dimension of the inputs varies from step to step, and whether it grows by one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from launchscope.frozen import dataclass
from launchscope.model import TensorShape
from launchscope.parser.trace import Bools, Ints

# Sizes count as growing by one when so many of the steps after another of their kind do.
_GROWING = 0.6

Shapes = tuple[TensorShape, ...]


@dataclass(frozen=True)
class Varying:
    """Steps of one structure. `sizes[i]` is the dimension that varies in step `steps[i]`."""

    steps: tuple[int, ...]
    sizes: tuple[int, ...]
    dimension: str
    growing: bool


def varying_of(shapes: Sequence[Shapes]) -> Varying | None:
    """The most frequent structure of inputs and its one free dimension; None if it has more."""
    groups: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for index, shape in enumerate(shapes):
        groups[tuple(len(tensor.dims) for tensor in shape)].append(index)
    steps = max(groups.values(), key=len)
    rows = np.array([[size for tensor in shapes[i] for size in tensor.dims] for i in steps])
    decoding = _decoding(rows)
    if decoding.any() and not decoding.all():
        own = [step for step, mine in zip(steps, decoding) if mine]
        found = _of_one_size(shapes, own, rows[decoding])
        if found is not None and found.growing:
            return found
    return _of_one_size(shapes, steps, rows)


def _decoding(rows: Ints) -> Bools:
    """Which rows hold as few tokens as most do: with an attention mask, the inputs of a prefill
    differ from those of the decoding that follows only in having more tokens."""
    chosen = np.ones(len(rows), bool)
    for column in rows.T:
        least = column.min()
        if (column == least).mean() >= _GROWING:
            chosen &= column == least
    return chosen


def _of_one_size(shapes: Sequence[Shapes], steps: Sequence[int], rows: Ints) -> Varying | None:
    """The one dimension of these rows that varies by itself; None if there are more."""
    values = [len(set(column)) for column in rows.T]
    # The dimension that determines all the others; the one with the most values can.
    first = int(np.argmax(values)) if values else 0
    if max(values, default=1) == 1:
        return None
    if any(len(set(zip(rows[:, first], column))) > values[first] for column in rows.T):
        return None
    sizes = tuple(int(size) for size in rows[:, first])
    follow = [(a, b) for (i, a), (k, b) in pairwise(zip(steps, sizes)) if k == i + 1]
    growing = len(follow) >= 3 and sum(b - a == 1 for a, b in follow) >= _GROWING * len(follow)
    return Varying(tuple(steps), sizes, _named(shapes[steps[0]], first), growing)


def _named(shapes: Shapes, column: int) -> str:
    inputs = enumerate(shapes, start=1)
    number, axis = [(n, axis) for n, tensor in inputs for axis in range(len(tensor.dims))][column]
    which = "the input" if len(shapes) == 1 else f"input {number} of {len(shapes)}"
    return f"dimension {axis} of {which}"


def phases_of(varying: Varying, shapes: Sequence[Shapes]) -> tuple[str, ...]:
    """Prefill and decode, where the sizes grow by one and other steps begin each run."""
    if not varying.growing:
        return ()
    others = sorted(set(range(len(shapes))) - set(varying.steps))
    decode = (
        f"decode: {len(varying.steps)} of {len(shapes)} steps, {varying.dimension} grows by one a "
        f"step, seen from {min(varying.sizes)} to {max(varying.sizes)}"
    )
    if not others:
        return (decode,)
    kinds = Counter(_short(shapes[index]) for index in others)
    named = ", ".join(
        text if n == len(others) else f"{text} ({n} of them)" for text, n in kinds.most_common(3)
    )
    prefill = f"prefill: {len(others)} of {len(shapes)} steps, inputs {named}; they stay eager"
    return decode, prefill


def _short(shapes: Shapes) -> str:
    return " ".join(str(shape.dims) for shape in shapes[:2]) + (" ..." if len(shapes) > 2 else "")
