"""How the shapes change between the inspected steps: a few that come back, or new ones each step.

Only a few steps are inspected. When each of them had shapes of its own, their number says
nothing about how many there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from launchscope.model import Profile
from launchscope.rules.profile_queries import distinct_inputs


@dataclass(frozen=True)
class Growth:
    """An input that is longer by one in every step, such as a key-value cache."""

    first: tuple[int, ...]  # its shape in the first inspected step
    second: tuple[int, ...]  # and in the next
    tensors: int  # inputs that grow like this

    @property
    def dimension(self) -> int:
        """The dimension that grows."""
        pairs = zip(self.first, self.second)
        return next(index for index, (before, after) in enumerate(pairs) if before != after)

    def __str__(self) -> str:
        return f"{self.first} -> {self.second}"


def every_step_differs(profile: Profile) -> bool:
    """Whether no two of the inspected steps, at least two, had the same input shapes."""
    signatures = profile.shapes.signatures
    once = all(signature.steps == 1 for signature in signatures)
    return len(signatures) > 1 and once and distinct_inputs(profile) == len(signatures)


def growth(profile: Profile) -> Growth | None:
    """The input that grows by one along one dimension from step to step, if that is all.

    Signatures seen equally often stand in the order of their steps.
    """
    if not every_step_differs(profile):
        return None
    steps = _inputs(profile)
    changed = {
        index
        for before, after in pairwise(steps)
        for index, pair in enumerate(zip(before, after))
        if pair[0] != pair[1]
    }
    if not changed or not all(_grows([step[index] for step in steps]) for index in changed):
        return None
    first = min(changed)
    return Growth(steps[0][first], steps[1][first], len(changed))


def shorter_batch(profile: Profile) -> tuple[int, int] | None:
    """Sizes (usual, other) of the first dimension where one step alone had fewer of them.

    So it is with the last batch of an epoch: all else about the inputs is the same.
    """
    signatures = profile.shapes.signatures
    counts = sorted(signature.steps for signature in signatures)
    if len(counts) != 2 or counts[0] != 1 or counts[1] < 2:
        return None
    usual, other = _inputs(profile) or ([], [])
    if signatures[0].steps == 1:
        usual, other = other, usual
    changed = [(a, b) for a, b in zip(usual, other) if a != b]
    if not all(a and b and a[1:] == b[1:] for a, b in changed):
        return None
    firsts = {(a[0], b[0]) for a, b in changed}
    (sizes,) = firsts if len(firsts) == 1 else [(0, 0)]
    return sizes if sizes[1] < sizes[0] else None


def _inputs(profile: Profile) -> list[list[tuple[int, ...]]]:
    """The shapes of each signature's inputs; empty where more than sizes differs."""
    steps = [signature.inputs for signature in profile.shapes.signatures]
    if len({tuple(tensor.dtype for tensor in inputs) for inputs in steps}) > 1:
        return []
    return [[tensor.dims for tensor in inputs] for inputs in steps]


def _grows(shapes: list[tuple[int, ...]]) -> bool:
    """Whether each shape is the one before with one more in the same dimension."""
    if len({len(shape) for shape in shapes}) > 1:
        return False
    grown = [
        tuple(later - earlier for earlier, later in zip(before, after))
        for before, after in pairwise(shapes)
    ]
    return len(set(grown)) == 1 and sorted(grown[0])[-1:] == [1] and sum(map(abs, grown[0])) == 1
