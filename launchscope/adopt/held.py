"""Compares what two versions of a script hold after the same number of steps.

What runs of the original do not have in common, such as times, is no result of the step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from launchscope.adopt.printed import is_resource
from launchscope.runner.protocol.observation import HeldValue, HeldValues

_NOISE_FACTOR = 10  # as of tensors
# Relative errors that are none: where all bits are equal, and where sums may be rounded in another
# way. A large tensor averages over its elements.
_EXACT, _ROUNDING, _ROUNDING_OF_MANY = 1e-6, 1e-4, 2e-5
_TINY = 1e-6  # what is left of numbers around 1 that cancel, in float32, may be off by so much
_MOST_NOISE = 1e-3  # of the size: more is a time, say, and no rounding
# One sample of so many that is classified in another way, where a comparison is that of rounded
# numbers.
_FEW_OF_MANY = 2e-3
_ROOT = re.compile(r"(?:len\()?(\w+)")
_NUMBERS = re.compile(r"[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?")


@dataclass(frozen=True)
class HeldDifference:
    """After so many units, under a name of the code: what the two say, "" where one lacks it."""

    unit: int
    name: str
    original: str
    patched: str


@dataclass(frozen=True)
class Held:
    """So many values agree. `rank`: where the difference is, of several."""

    values: int
    found: HeldDifference | None = None
    rank: int | None = None


def compare_held(
    originals: Sequence[Sequence[HeldValues]],
    patched: Sequence[HeldValues],
    *,
    inner: Collection[str] = (),
    exact: bool = False,
) -> Held:
    """With the first of the `originals`; what the others hold shows what depends on more than the
    steps. `inner`: names that only the step itself reads. `exact`: the patched run computes the
    same bits."""
    values = 0
    for reference, other, *twins in zip(originals[0], patched, *originals[1:]):
        if reference.unit != other.unit or any(twin.unit != other.unit for twin in twins):
            break
        made = _Look(reference, other, twins, frozenset(inner), exact)
        for name in made.common:
            if made.differs(name):
                found = reference.values[name], other.values.get(name)
                shown = (_shown(each) for each in found)
                return Held(values, HeldDifference(reference.unit, name, *shown))
        values += len(made.common)
    return Held(values)


class _Look:
    """One look at each of the runs."""

    def __init__(
        self,
        reference: HeldValues,
        other: HeldValues,
        twins: Sequence[HeldValues],
        inner: frozenset[str],
        exact: bool,
    ):
        self._reference, self._other, self._exact = reference, other, exact
        self._noise: dict[str, float] = {}  # by family of names, relative
        self._rounding = _EXACT if exact else _ROUNDING
        whole = reference.whole and other.whole
        self.common = [
            name
            for name, value in reference.values.items()
            if all(name in twin.values for twin in twins)
            and root_of(name) not in inner
            and not is_resource(name)
            and self._is_stable(value, [twin.values[name] for twin in twins])
            and (name in other.values or (whole and self._has_root(name)))
        ]
        for name in self.common:
            noise = max(
                (_apart(reference.values[name], twin.values[name]) for twin in twins), default=0.0
            )
            family = re.sub(r"\d+", "#", name)
            self._noise[family] = max(self._noise.get(family, 0.0), noise)
        noises = [noise for noise in self._noise.values() if noise]
        if noises and not exact:
            self._rounding = max(self._rounding, min(_NOISE_FACTOR * median(noises), 0.01))

    def _has_root(self, name: str) -> bool:
        """Whether the patched version has the variable at all, through which the value was found:
        it leaves out names that nobody reads."""
        return any(root_of(known) == root_of(name) for known in self._other.values)

    def _is_stable(self, value: HeldValue, others: Sequence[HeldValue]) -> bool:
        for other in others:
            if _words(other) != _words(value) or not _apart(value, other) <= _MOST_NOISE:
                return False
            if self._exact and _apart(value, other):
                return False
            if value.number is not None and value.number.is_integer() and value != other:
                return False
        return True

    def differs(self, name: str) -> bool:
        value, other = self._reference.values[name], self._other.values.get(name)
        if other is None or _words(value) != _words(other):
            return True
        error = _apart(value, other)
        if not error:
            return False
        noise = self._noise[re.sub(r"\d+", "#", name)]
        rounding = self._rounding
        if value.number is not None and value.number.is_integer():
            if self._exact:
                return True
            if other.number is not None and other.number.is_integer():
                return error > max(_FEW_OF_MANY, _NOISE_FACTOR * noise)
        if value.sketch and not self._exact:
            rounding = _ROUNDING_OF_MANY
        one, another = value.number, other.number
        if one is not None and another is not None and not self._exact:
            rounding = max(rounding, _relative(_TINY, abs(one)))
        return error > max(rounding, _NOISE_FACTOR * noise)


def root_of(name: str) -> str:
    """The variable of the innermost frame or of the script's module in it."""
    found = _ROOT.match(name)
    return found.group(1) if found else name


def _words(value: HeldValue) -> str:
    """What has to be equal: of a text with numbers, the text around them."""
    return _NUMBERS.sub("0", value.text) if value.text[:1] in "'\"" else value.text


def _apart(one: HeldValue, other: HeldValue) -> float:
    """How far apart, relative to the size of the first."""
    if one.number is not None and other.number is not None:
        return _relative(abs(one.number - other.number), abs(one.number))
    if one.sketch or other.sketch:
        if one.digest == other.digest:
            return 0.0
        if len(one.sketch) != len(other.sketch):
            return math.inf
        return _relative(math.dist(one.sketch, other.sketch), math.hypot(*one.sketch))
    pairs = zip(_numbers(one), _numbers(other))
    return max((_relative(abs(a - b), abs(a)) for a, b in pairs), default=0.0)


def _relative(distance: float, size: float) -> float:
    if not distance:
        return 0.0
    return distance / size if size else math.inf


def _numbers(value: HeldValue) -> Iterator[float]:
    if value.text[:1] in "'\"":
        yield from map(float, _NUMBERS.findall(value.text))


def _shown(value: HeldValue | None) -> str:
    if value is None:
        return ""
    if value.number is not None:
        return f"{value.number:.9g}"
    if value.sketch:
        return f"{value.text} of norm {math.hypot(*value.sketch):.7g}"
    return value.text
