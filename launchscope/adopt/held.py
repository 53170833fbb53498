"""Compares what two versions of a script hold after the same number of steps.

What runs of the original do not have in common, such as times, is no result of the step.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from launchscope.adopt.observation import HeldValue, HeldValues
from launchscope.adopt.printed import words_and_results

_NOISE_FACTOR = 10  # as of tensors
# Relative errors that are none: where all bits are equal, and where sums may be rounded in another
# way. A large tensor averages over its elements.
_EXACT, _ROUNDING, _ROUNDING_OF_MANY = 1e-6, 1e-4, 2e-5
# A tensor that is stale by one of the steps between two looks is off by their share of its change.
_OF_A_CHANGE, _ROUNDING_OF_FLOAT32 = 0.02, 3e-7
_TINY = 1e-6  # what is left of numbers around 1 that cancel, in float32, may be off by so much
_FEW_UNSTABLE = 0.1  # of the entries of a list: else the others agree by chance
_MOST_NOISE = 1e-3  # of the size: more is a time, say, and no rounding
# One sample of so many that is classified in another way, where a comparison is that of rounded
# numbers: not for what grows equally in each step.
_FEW_OF_MANY = 2e-3
# A variable of the innermost code, and not `train(): x` or `module train: x`.
_ROOT = re.compile(r"(?:len\()?(\w+)(?=[.\[)]|: |$)")
# What changes with a faster step, or with a graph: words of a name under which it is kept.
_MEMORIES = frozenset(("mem", "memory", "vram", "gb", "mb", "gib", "mib", "allocated", "reserved"))
_RESOURCES = _MEMORIES | {
    *("time", "times", "elapsed", "eta", "dt", "duration", "latency", "sec", "secs", "second"),
    *("seconds", "ms", "minutes", "hours", "wall", "clock", "timestamp", "fps", "sps", "tps"),
    *("throughput", "speed", "mfu", "ips"),
}
_OF_RESULTS = frozenset({
    "step", "steps", "loss", "losses", "embed", "embedding", "min", "bank", "dim", "size",
})  # fmt: skip
_ROW = 2  # numbers in a text, of which one may be a time
_SERIES = 10  # entries of a list whose changes say how far one of them may be off
_ENTRY = re.compile(r"(?:\.(?:avg|val|value|sum|total|mean|last|smoothed))?((?:\[-?\d+\])*)$")
_LEAF = re.compile(r"(\w+)['\"]?\]?$")


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
    changes = _changes(originals[0])
    for reference, other, *twins in zip(originals[0], patched, *originals[1:]):
        if reference.unit != other.unit or any(twin.unit != other.unit for twin in twins):
            break
        made = _Look(reference, other, twins, frozenset(inner), exact, changes)
        for name in made.common:
            if made.differs(name):
                found = reference.values[name], other.values.get(name)
                shown = (_shown(each) for each in found)
                return Held(values, HeldDifference(reference.unit, name, *shown))
        values += len(made.common)
    return Held(values)


@dataclass(frozen=True)
class _Change:
    """From the first look to the last. `steady`: by the same whole number in each step, as far as
    two looks show it."""

    size: float
    steady: bool


def _changes(looks: Sequence[HeldValues]) -> dict[str, _Change]:
    if len(looks) < 2:
        return {}
    first, last = looks[0], looks[-1]
    found = {}
    for name, before in first.values.items():
        after = last.values.get(name)
        if after is None:
            continue
        if before.number is not None and after.number is not None:
            size = after.number - before.number
            found[name] = _Change(abs(size), size % (last.unit - first.unit) == 0)
        elif len(before.sketch) == len(after.sketch) > 0:
            found[name] = _Change(math.dist(before.sketch, after.sketch), False)
    along = _changes_along_lists(last, last.unit - first.unit)
    return along | {name: made for name, made in found.items() if made.size or name not in along}


def _changes_along_lists(look: HeldValues, units: int) -> dict[str, _Change]:
    """Of entries, which stay as they are: how far so many of them lead, one for each unit."""
    series: dict[str, list[str]] = {}
    for name, value in look.values.items():
        if value.number is not None and name.endswith("]"):
            series.setdefault(_family(name), []).append(name)
    found: dict[str, _Change] = {}
    for names in series.values():
        numbers = [look.values[name].number or 0.0 for name in names]
        steps = [abs(b - a) for a, b in pairwise(numbers) if b != a]
        if len(names) >= _SERIES and 2 * len(steps) > len(names):
            found |= dict.fromkeys(names, _Change(units * median(steps), False))
    return found


class _Look:
    """One look at each of the runs."""

    def __init__(
        self,
        reference: HeldValues,
        other: HeldValues,
        twins: Sequence[HeldValues],
        inner: frozenset[str],
        exact: bool,
        changes: Mapping[str, _Change],
    ):
        self._reference, self._other, self._exact = reference, other, exact
        self._changes = changes
        self._noise: dict[str, float] = {}  # by family of names, relative
        # By family, the places in its texts where the originals have other numbers: of a time, say.
        self._left_out: dict[str, set[int]] = {}
        self._rounding = _EXACT if exact else _ROUNDING
        whole = reference.whole and other.whole
        shared = [
            name
            for name, value in reference.values.items()
            if all(name in twin.values for twin in twins)
            and root_of(name) not in inner
            and (not _is_resource(name, many=bool(value.sketch)) or self._is_no_time(name, twins))
            and (name in other.values or (whole and self._has_root(name)))
        ]
        for name in shared:
            for twin in twins:
                self._leave_out(name, reference.values[name], twin.values[name])
        stable = {
            name for name in shared if self._is_stable(name, [twin.values[name] for twin in twins])
        }
        members = Counter(map(_family, shared))
        differing = Counter(_family(name) for name in shared if name not in stable)
        self.common = [
            name
            for name in shared
            if name in stable and differing[_family(name)] <= _FEW_UNSTABLE * members[_family(name)]
        ]
        for name in self.common:
            noise = max((self._apart(name, twin.values[name]) for twin in twins), default=0.0)
            family = _family(name)
            self._noise[family] = max(self._noise.get(family, 0.0), noise)
        noises = [noise for noise in self._noise.values() if noise]
        if noises and not exact:
            self._rounding = max(self._rounding, min(_NOISE_FACTOR * median(noises), 0.01))

    def _has_root(self, name: str) -> bool:
        """Whether the patched version has the variable at all, through which the value was found:
        it leaves out names that nobody reads."""
        root = root_of(name)
        return root is None or any(root_of(known) == root for known in self._other.values)

    def _is_no_time(self, name: str, twins: Sequence[HeldValues]) -> bool:
        """Whether all runs of the original hold the same fraction, under a name as of a time."""
        number = self._reference.values[name].number
        same = bool(twins) and all(twin.values[name].number == number for twin in twins)
        return same and number is not None and not number.is_integer() and not _is_memory(name)

    def _leave_out(self, name: str, value: HeldValue, other: HeldValue) -> None:
        pairs = list(zip(_numbers(value), _numbers(other)))
        if len(pairs) < _ROW or _words(value) != _words(other):
            return
        most = 0.0 if self._exact else _MOST_NOISE
        found = {at for at, (a, b) in enumerate(pairs) if _relative(abs(a - b), abs(a)) > most}
        if len(found) < len(pairs):
            self._left_out.setdefault(_family(name), set()).update(found)

    def _apart(self, name: str, other: HeldValue) -> float:
        """How far apart, relative to the size of what the original holds."""
        value = self._reference.values[name]
        if value.number is not None and other.number is not None:
            return _relative(abs(value.number - other.number), abs(value.number))
        if value.sketch or other.sketch:
            if value.digest == other.digest:
                return 0.0
            if len(value.sketch) != len(other.sketch):
                return math.inf
            return _relative(math.dist(value.sketch, other.sketch), math.hypot(*value.sketch))
        left_out = self._left_out.get(_family(name), set())
        pairs = [
            pair
            for at, pair in enumerate(zip(_numbers(value), _numbers(other)))
            if at not in left_out
        ]
        return max((_relative(abs(a - b), abs(a)) for a, b in pairs), default=0.0)

    def _is_stable(self, name: str, others: Sequence[HeldValue]) -> bool:
        value = self._reference.values[name]
        for other in others:
            apart = self._apart(name, other)
            if _words(other) != _words(value) or not apart <= _MOST_NOISE:
                return False
            if self._exact and apart:
                return False
            if value.number is not None and value.number.is_integer() and value != other:
                return False
        return True

    def differs(self, name: str) -> bool:
        value, other = self._reference.values[name], self._other.values.get(name)
        if other is None or _words(value) != _words(other):
            return True
        error = self._apart(name, other)
        if not error:
            return False
        noise = self._noise[_family(name)]
        change = self._changes.get(name, _Change(math.inf, False))
        one, another = value.number, other.number
        if one is None or another is None:
            return error > max(self._rounding_of(value, change), _NOISE_FACTOR * noise)
        if one.is_integer() and (self._exact or change.steady):
            return True
        if one.is_integer() and another.is_integer():
            return error > max(_FEW_OF_MANY, _NOISE_FACTOR * noise)
        rounding, tiny = self._rounding, 0.0 if self._exact else _TINY
        if 0 < change.size < math.inf and not self._exact:
            stale = _OF_A_CHANGE * change.size
            rounding = max(min(rounding, _relative(stale, abs(one))), 2 * _EXACT)
            tiny = min(tiny, stale)
        return error > max(rounding, _relative(tiny, abs(one)), _NOISE_FACTOR * noise)

    def _rounding_of(self, value: HeldValue, change: _Change) -> float:
        """The relative error of a tensor, or of the numbers in a text, that is none."""
        if not value.sketch:
            return self._rounding
        if self._exact:
            return 0.0
        if not value.text.startswith(("float32", "float64")):
            return _ROUNDING_OF_MANY
        stale = _OF_A_CHANGE * _relative(change.size, math.hypot(*value.sketch))
        return max(min(_ROUNDING_OF_MANY, stale), _ROUNDING_OF_FLOAT32)


def _family(name: str) -> str:
    """What a name has in common with those of other entries: `rows[#][2]` of `rows[17][2]`."""
    parts = re.split(r"(\d+)", name)
    kept = len(parts) - 2 if len(parts) > 3 else 0
    return "".join(part if at == kept or at % 2 == 0 else "#" for at, part in enumerate(parts))


def root_of(name: str) -> str | None:
    """The variable of the innermost code, through which a value was found."""
    found = _ROOT.match(name)
    return found.group(1) if found else None


def _is_resource(name: str, *, many: bool) -> bool:
    """Whether it is named as a time, a rate or memory is, or is an entry of a list of these, or
    `many` of them. What `memory` has many of is rather a replay memory."""
    entry = _ENTRY.search(name)
    many = many or (entry is not None and bool(entry.group(1)))
    leaf = _LEAF.search(name[: entry.start()] if entry else name)
    words = leaf.group(1).lower().split("_") if leaf else [""]
    found = _RESOURCES & set(words) - ({"memory"} if many else set())
    return bool(found) and words[-1] not in _OF_RESULTS


def _is_memory(name: str) -> bool:
    return not _MEMORIES.isdisjoint(re.split(r"[^a-z]+", name.lower()))


def _words(value: HeldValue) -> str:
    """What has to be equal: of a text with numbers, the text around them."""
    return words_and_results(value.text)[0] if value.text[:1] in "'\"" else value.text


def _relative(distance: float, size: float) -> float:
    if not distance:
        return 0.0
    return distance / size if size else math.inf


def _numbers(value: HeldValue) -> list[float]:
    return words_and_results(value.text)[1] if value.text[:1] in "'\"" else []


def _shown(value: HeldValue | None) -> str:
    if value is None:
        return ""
    if value.number is not None:
        return f"{value.number:.9g}"
    if value.sketch:
        return f"{value.text} of norm {math.hypot(*value.sketch):.7g}"
    return value.text
