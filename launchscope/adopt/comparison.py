"""Compares what two versions of a script did, value by value.

What two runs of the original have alike has to be alike in the changed script. Where they differ,
because an operation has no deterministic form, numbers may be as far away as such runs are.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeAlias

from launchscope.adopt.record import Iteration, Kind, Noted

# Distances of sketches scatter by some ten percent, and two runs of the original may happen to be
# close; a wrong update is off by the size of an update.
_SPREAD = 4.0
_ORDERED: tuple[Kind, ...] = ("batch", "read", "given")

Key: TypeAlias = tuple[Kind, str | int]


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
    """`values`: that agree. `exact`: all of them to the last bit. `repeats`: two runs of the
    original are equal in all values."""

    iterations: int
    values: int
    reads: int
    exact: bool
    repeats: bool
    difference: Difference | None = None


NOTHING_COMPARED = Comparison(0, 0, 0, exact=False, repeats=False)


def compare(
    first: Sequence[Iteration], second: Sequence[Iteration], patched: Sequence[Iteration]
) -> Comparison:
    """The iterations of two runs of the original, and of the changed script: first the state before
    any, last what can be reached at the end. All that the first original has is compared."""
    values = reads = 0
    exact = repeats = True
    spread = 0.0
    for at, (one, other, made) in enumerate(zip_longest(first, second, patched)):
        originals = _by_key(one or other), _by_key(other or one)
        found = _by_key(made)
        repeats = repeats and originals[0] == originals[1]
        spread = max(spread, _spread(*originals))
        for key, expected in originals[0].items():
            twin, value = originals[1].get(key), found.get(key)
            if value in (expected, twin):
                values += 1
                reads += key[0] == "read"
                continue
            exact = False
            if twin is None or not _agrees(expected, twin, value, spread):
                difference = _difference(at, key, expected, value)
                return Comparison(at, values, reads, False, repeats, difference)
            values += 1
        extra = next((key for key in found if key not in originals[0]
                      and key not in originals[1] and key[0] in _ORDERED), None)  # fmt: skip
        if extra is not None:
            difference = _difference(at, extra, None, found[extra])
            return Comparison(at, values, reads, False, repeats, difference)
    return Comparison(max(0, len(patched) - 2), values, reads, exact, repeats)


def first_inequality(first: Sequence[Iteration], second: Sequence[Iteration]) -> Kind | None:
    """Whether two runs of the original begin in other states, or get other batches."""
    for at, pair in enumerate(zip(first, second)):
        for kind in ("state", "batch") if at == 0 else ("batch",):
            one, other = ([n for n in each.noted if n.kind == kind] for each in pair)
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


def _by_key(iteration: Iteration | None) -> dict[Key, Noted]:
    """Values by their name or, where their order counts, by their place in it."""
    found: dict[Key, Noted] = {}
    counts: dict[Kind, int] = defaultdict(int)
    for noted in () if iteration is None else iteration.noted:
        key: str | int = noted.name
        if noted.kind in _ORDERED:
            key = counts[noted.kind]
            counts[noted.kind] += 1
        found[noted.kind, key] = noted
    return found


def _spread(one: Mapping[Key, Noted], other: Mapping[Key, Noted]) -> float:
    """The largest relative distance of a value in two runs of the original."""
    return max((_distance(a, b) for a, b in _pairs(one, other)), default=0.0)


def _pairs(one: Mapping[Key, Noted], other: Mapping[Key, Noted]) -> Iterator[tuple[Noted, Noted]]:
    for key, value in one.items():
        twin = other.get(key)
        if twin is not None and value != twin and value.sketch and twin.sketch:
            yield value, twin


def _agrees(expected: Noted, twin: Noted, value: Noted | None, spread: float) -> bool:
    if value is None or (expected.name, expected.kind) != (value.name, value.kind):
        return False
    if expected == twin:  # the originals agree here: any other value is a difference
        return False
    if not (expected.sketch and value.sketch):
        return expected.text != twin.text or not expected.sketch
    nearest = min(_distance(expected, value), _distance(twin, value))
    return value.text == expected.text and nearest <= _SPREAD * spread


def _distance(one: Noted, other: Noted) -> float:
    """Of two sketches, as a share of their size."""
    if len(one.sketch) != len(other.sketch):
        return math.inf
    size = max(math.hypot(*one.sketch), math.hypot(*other.sketch))
    return math.dist(one.sketch, other.sketch) / size if size else 0.0


def _difference(at: int, key: Key, expected: Noted | None, value: Noted | None) -> Difference:
    known = expected or value
    assert known is not None
    return Difference(at, key[0], known.name, _shown(expected), _shown(value))


def _shown(noted: Noted | None) -> str:
    if noted is None:
        return ""
    return f"{noted.sketch[0]:.9g}" if len(noted.sketch) == 1 else noted.text
