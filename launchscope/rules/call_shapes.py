"""Input shapes told from the number of inputs: what differs if a step calls its model more often.

A step of several calls reads one input more for each, and stacks what belongs to them. The sizes
of such a stack say how many calls there were; padding one call's inputs would change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from launchscope.model import Profile, TensorShape

__all__ = ["calls_seen", "shapes_seen"]


def calls_seen(profile: Profile) -> list[int]:
    """The different numbers of forwards in a step, ascending; empty where they are not known."""
    counts = [signature.forwards for signature in profile.shapes.signatures]
    known = {count for count in counts if count is not None}
    return [] if None in counts else sorted(known)


def shapes_seen(profile: Profile) -> set[frozenset[TensorShape]]:
    """The different sets of input shapes, however often a shape occurs in one step."""
    signatures = profile.shapes.signatures
    seen = [frozenset(signature.inputs) for signature in signatures]
    calls = [signature.forwards or 0 for signature in signatures]
    if len(set(seen)) < 2 or len(calls_seen(profile)) < 2 or not all(seen):
        return set(seen)
    common = frozenset.intersection(*seen)
    # A stack as long as another input is wide is in none of the rests.
    rests = [(sorted(own - common, key=_kind), n) for own, n in zip(seen, calls) if own > common]
    return {common} if _follow([rest for rest, _ in rests], [n for _, n in rests]) else set(seen)


def _kind(shape: TensorShape) -> tuple[int, str, tuple[int, ...]]:
    return len(shape.dims), shape.dtype, shape.dims


def _follow(rests: Sequence[Sequence[TensorShape]], calls: Sequence[int]) -> bool:
    """Whether these shapes differ only in sizes that follow from the number of calls."""
    if len({tuple(_kind(shape)[:2] for shape in rest) for rest in rests}) > 1:
        return False
    rows = [[size for shape in rest for size in shape.dims] for rest in rests]
    return all(_follows(sizes, calls) for sizes in zip(*rows) if len(set(sizes)) > 1)


def _follows(sizes: Sequence[int], calls: Sequence[int]) -> bool:
    """Whether there are as many for each call, or one for each beside a fixed number."""
    by_call = all(size * calls[0] == sizes[0] * n for size, n in zip(sizes, calls))
    return by_call or len({size - n for size, n in zip(sizes, calls)}) == 1
