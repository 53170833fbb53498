"""How the input shapes and the ops differ between the inspected steps, which are only a few."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from launchscope.model import Profile, TensorShape


class Growth(Struct, frozen=True):
    """An input that is longer by one in every step, such as a key-value cache."""

    first: tuple[int, ...]  # its shape in the first inspected step
    second: tuple[int, ...]  # and in the next
    tensors: int  # inputs that grow like this

    @property
    def dimension(self) -> int:
        return [a == b for a, b in zip(self.first, self.second)].index(False)

    def __str__(self) -> str:
        return f"{self.first} -> {self.second}"


def calls_seen(profile: Profile) -> list[int]:
    """The different numbers of model calls in a step, ascending; empty if they are not known."""
    counts = {signature.forwards for signature in profile.shapes.signatures}
    known = sorted(count for count in counts if count is not None)
    return known if len(known) == len(counts) else []


def distinct_inputs(profile: Profile) -> int:
    """How many different sets of input shapes steps have that call their model equally often: of
    others the control flow differs."""
    several = len(calls_seen(profile)) > 1
    seen = defaultdict[int | None, set[frozenset[TensorShape]]](set)
    for signature in profile.shapes.signatures:
        seen[signature.forwards if several else None].add(frozenset(signature.inputs))
    return max(map(len, seen.values()), default=0)


def branches(profile: Profile) -> bool:
    """Whether steps with equal input shapes ran different ops."""
    return len(profile.shapes.signatures) > max(1, distinct_inputs(profile))


def every_step_differs(profile: Profile) -> bool:
    """Whether at least two steps were inspected and no two had the same input shapes."""
    signatures = profile.shapes.signatures
    once = all(signature.steps == 1 for signature in signatures)
    return len(signatures) > 1 and once and distinct_inputs(profile) == len(signatures)


def growth(profile: Profile) -> Growth | None:
    """The input that grows by one along one dimension from step to step, if nothing else changes.
    Signatures that occur equally often are in the order of their steps."""
    if not every_step_differs(profile):
        return None
    inputs = list(zip(*_dims(profile)))  # of each input, its shape in every step
    changed = [shapes for shapes in inputs if len(set(shapes)) > 1]
    if not changed or not all(_grows(shapes) for shapes in changed):
        return None
    return Growth(changed[0][0], changed[0][1], len(changed))


def _dims(profile: Profile) -> list[list[tuple[int, ...]]]:
    """The shapes of each signature's inputs; empty if more than sizes differs."""
    steps = [signature.inputs for signature in profile.shapes.signatures]
    if len({tuple(tensor.dtype for tensor in inputs) for inputs in steps}) > 1:
        return []
    return [[tensor.dims for tensor in inputs] for inputs in steps]


def _grows(shapes: Sequence[tuple[int, ...]]) -> bool:
    """Whether each shape is the one before with one more in the same dimension."""
    if len({len(shape) for shape in shapes}) > 1:
        return False
    added = {tuple(b - a for a, b in zip(first, second)) for first, second in pairwise(shapes)}
    return len(added) == 1 and sorted(added.pop()) == [0] * (len(shapes[0]) - 1) + [1]
