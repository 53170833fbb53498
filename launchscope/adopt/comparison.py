"""Compares what two versions of a script did, value by value.

What two runs of the original have alike has to be alike in the changed script. Where they differ,
because an operation has no deterministic form, numbers may be as far away as such runs are.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeAlias

from launchscope.adopt.record import Iteration, Kind, Noted

# Distances of sketches scatter by some ten percent, and two runs of the original may happen to be
# close; a wrong update is off by the size of an update.
_SPREAD = 4.0
_ORDERED: tuple[Kind, ...] = ("batch", "read", "given")

Key: TypeAlias = tuple[Kind, str | int]
Values: TypeAlias = Mapping[Key, Noted]


@dataclass(frozen=True)
class Difference:
    """The first one. `iteration`: after so many. Without a text, a version has no such value."""

    iteration: int
    kind: Kind | None  # None: printed text
    name: str
    original: str
    patched: str


@dataclass(frozen=True)
class Comparison:
    """`values`: that agree. `exact`: all of them to the last bit."""

    iterations: int = 0
    values: int = 0
    reads: int = 0
    exact: bool = False
    difference: Difference | None = None


def compare(
    first: Sequence[Iteration], second: Sequence[Iteration], patched: Sequence[Iteration]
) -> Comparison:
    """The iterations of two runs of the original, and of the changed script: first the state before
    any, last what can be reached at the end. All that the first original has is compared."""
    values = reads = 0
    exact, spread = True, 0.0
    for at, noted in enumerate(zip_longest(first, second, patched, fillvalue=())):
        one, other, made = map(_by_key, noted)
        spread = max(spread, _spread(one, other))
        for key, expected in one.items():
            originals, value = (expected, other.get(key)), made.get(key)
            equal = value in originals
            exact = exact and equal
            if not equal and not _is_near(originals, value, spread):
                return Comparison(at, values, reads, False, _difference(at, expected, value))
            values += 1
            reads += key[0] == "read"
        for key, value in made.items():
            if key[0] in _ORDERED and key not in one and key not in other:
                return Comparison(at, values, reads, False, _difference(at, None, value))
    return Comparison(max(0, len(patched) - 2), values, reads, exact)


def first_inequality(first: Sequence[Iteration], second: Sequence[Iteration]) -> Kind | None:
    """Whether two runs of the original begin in other states, or get other batches."""
    for at, pair in enumerate(zip(first, second)):
        for kind in ("state", "batch") if at == 0 else ("batch",):
            one, other = ([noted for noted in each if noted.kind == kind] for each in pair)
            if one != other:
                return kind
    return None


def compare_lines(first: str, second: str, patched: str) -> Difference | int | None:
    """The number of printed lines that agree, or the first that differs. None: the original prints
    another number of lines in each run. Lines that it prints differently in each are left out."""
    texts = [text.splitlines() for text in (first, second, patched)]
    if len(texts[0]) != len(texts[1]):
        return None
    lines = 0
    for one, other, made in zip_longest(*texts):
        if one == other and made != one:
            return Difference(0, None, "", one or "", made or "")
        lines += one == other
    return lines


def _by_key(iteration: Iteration) -> dict[Key, Noted]:
    """Values by their name or, where their order counts, by their place in it."""
    found: dict[Key, Noted] = {}
    counts: dict[Kind, int] = defaultdict(int)
    for noted in iteration:
        place = counts[noted.kind]
        counts[noted.kind] += 1
        found[noted.kind, place if noted.kind in _ORDERED else noted.name] = noted
    return found


def _spread(one: Values, other: Values) -> float:
    """The largest relative distance of a number in two runs of the original."""
    twins = ((value, other.get(key)) for key, value in one.items())
    return max((_distance(a, b) for a, b in twins if b and a != b and a.sketch), default=0.0)


def _is_near(originals: tuple[Noted, Noted | None], value: Noted | None, spread: float) -> bool:
    """Whether a value that no original has is as near to them as they are to one another. Other
    values than numbers cannot be compared where the originals differ."""
    one, other = originals
    if value is None or other is None or one == other or one.name != value.name:
        return False
    if not (one.sketch and other.sketch):
        return True
    nearest = min(_distance(one, value), _distance(other, value))
    return value.text == one.text and nearest <= _SPREAD * spread


def _distance(one: Noted, other: Noted) -> float:
    """Of two sketches, as a share of their size."""
    if len(one.sketch) != len(other.sketch):
        return math.inf
    size = max(math.hypot(*one.sketch), math.hypot(*other.sketch))
    return math.dist(one.sketch, other.sketch) / size if size else 0.0


def _difference(at: int, expected: Noted | None, value: Noted | None) -> Difference:
    known = expected or value
    assert known is not None
    return Difference(at, known.kind, known.name, _shown(expected), _shown(value))


def _shown(noted: Noted | None) -> str:
    if noted is None:
        return ""
    return f"{noted.sketch[0]:.9g}" if len(noted.sketch) == 1 else noted.text
