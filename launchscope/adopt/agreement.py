"""Whether two observed runs computed the same, and where they began to differ."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from statistics import median
from typing import Literal

from launchscope.adopt.observation import COMPARED, StepState

# A difference may be so many times the noise of eager runs, whose size is known from one pair.
_NOISE_FACTOR = 10
# In units of the dtype's rounding, where two eager runs agree in every bit.
_FLOOR_EPSILONS = 16
_READ_EPSILON = 1.2e-7  # of float32, in which losses are mostly read
_NORMAL = 1e-300
# Runs move apart at their own pace: what one pair shows after so many units, another may show after
# half as many, or a few units earlier.
_SOONER, _EARLIER = 2, 8

What = Literal["initial", "batch", "input", "state", "read", "reads", "steps"]


@dataclass(frozen=True)
class Disagreement:
    """The first difference: in what, by which name, at the beginning of which step. `error` is
    relative to how far the tensor has moved, and was allowed up to `allowed`. `rank`: on which of
    several."""

    what: What
    unit: int
    name: str = ""
    error: float = 0.0
    allowed: float = 0.0
    rank: int | None = None


@dataclass
class Growth:
    """The largest differences that eager runs have, by the units since they were equal."""

    at: dict[int, float] = field(default_factory=dict)

    def add(self, units: int, error: float) -> None:
        self.at[units] = max(self.at.get(units, 0.0), error)
        self.__dict__.pop("_largest", None)

    def until(self, units: int) -> float:
        """The largest that so many units, or some more, explain."""
        known, largest = self._largest
        reached = bisect_right(known, max(_SOONER * units, units + _EARLIER))
        return largest[reached - 1] if reached else 0.0

    @cached_property
    def _largest(self) -> tuple[list[int], list[float]]:
        known = sorted(self.at)
        return known, list(accumulate((self.at[units] for units in known), max))


@dataclass(frozen=True)
class Noise:
    """How far eager runs are from each other: of each tensor before and after so many `compared`
    units, and of values."""

    tensors: Mapping[tuple[str, bool], Growth] = field(default_factory=dict)
    reads: Growth = field(default_factory=Growth)
    compared: int = COMPARED

    def of(self, name: str, unit: int, restored: Sequence[int]) -> float:
        """How far the tensor may be off after so many units, of which the last restored one was
        equal."""
        growth = self.tensors.get((name, unit > self.compared))
        return 0.0 if growth is None else growth.until(unit - _last_equal(unit, restored))

    @property
    def none(self) -> bool:
        return not any(any(growth.at.values()) for growth in (self.reads, *self.tensors.values()))


@dataclass(frozen=True)
class Agreement:
    """`units` were compared; `exact`: they agree in every bit. `reads`: values that the host read
    in both, None where they could not be matched."""

    units: int
    exact: bool
    reads: int | None
    found: Disagreement | None = None


Pair = tuple[StepState, StepState]


def pairs(one: Sequence[StepState], other: Sequence[StepState]) -> list[Pair]:
    """The states after equally many units, each with all that was read since the last of them."""
    common = {state.unit for state in one} & {state.unit for state in other}
    return list(zip(_at(common, one), _at(common, other)))


def _at(units: Set[int], states: Sequence[StepState]) -> Iterator[StepState]:
    reads: tuple[float, ...] = ()
    for state in states:
        reads += state.reads
        if state.unit in units:
            yield state if reads == state.reads else replace(state, reads=reads)
            reads = ()


def noise_of(
    first: Sequence[StepState],
    *others: Sequence[StepState],
    restored: Sequence[int] = (),
    compared: int = COMPARED,
) -> Noise:
    """Of eager runs, as distances from the first; of others that began steps with its states,
    after so many units."""
    tensors: dict[tuple[str, bool], Growth] = {}
    reads = Growth()
    for other in others:
        errors = _Errors(first, restored)
        for one, two in pairs(first, other):
            equal = _last_equal(one.unit, restored)
            for name in one.digests.keys() & two.digests.keys():
                if one.digests[name] != two.digests[name]:
                    growth = tensors.setdefault((name, one.unit > compared), Growth())
                    growth.add(one.unit - equal, errors.of(name, one, two))
            reads.add(one.unit - equal, max(_read_errors(one, two), default=0.0))
    return Noise(tensors, reads, compared)


def _last_equal(unit: int, restored: Sequence[int]) -> int:
    """The unit before this one after which the states were last equal: `restored` ascends."""
    before = bisect_left(restored, unit)
    return restored[before - 1] if before else 0


def first_inequality(one: Sequence[StepState], other: Sequence[StepState]) -> Disagreement | None:
    """Whether two runs of one script begin alike and get the same batches."""
    if one and other and one[0].digests != other[0].digests:
        name = next((n for n, d in one[0].digests.items() if other[0].digests.get(n) != d), "")
        return Disagreement("initial", 0, name)
    return _other_batch(one, other)


def agreement(
    reference: Sequence[StepState],
    other: Sequence[StepState],
    noise: Noise,
    epsilons: Mapping[str, float],
    expected: int | None = None,
    *,
    restored: Sequence[int] = (),
    bits: bool = False,
    since: int = 0,
    sums: bool = False,
) -> Agreement:
    """How `other` compares with eager: bits, or differences that `noise` and the dtype explain.

    `restored`: the units after which `other` went on from the state of `reference`. `bits`: nothing
    explains a difference. `expected`: so many units at least, as a rule the compared ones. `since`:
    differences after so many units count. `sums`: `other` reads sums of what eager reads.
    """
    both = [pair for pair in pairs(reference, other) if not since or pair[0].unit > since]
    exact = all(one.digests == two.digests for one, two in both)
    as_many = all(len(one.reads) == len(two.reads) for one, two in both)
    # What is read some steps later is not lost.
    fewer = not sums and all(len(one.reads) >= len(two.reads) for one, two in both)
    number = sum(len(two.reads) for _, two in both)
    matched = as_many or (fewer and number > 0)
    reads = number if matched else None
    exact = exact and (not matched or not any(any(_read_errors(*pair)) for pair in both))
    units = both[-1][0].unit if both else 0
    all_found = [first_inequality(reference, other), _other_input(both)]
    if not sums:
        all_found.append(_lost_reads(both))
    if not exact:
        errors = _Errors(reference, restored)
        all_found.append(_first_state(errors, both, noise, None if bits else epsilons))
        all_found.append(_first_read(both, noise, matched, bits, restored))
    if units < (noise.compared if expected is None else expected):
        all_found.append(Disagreement("steps", units))
    differences = [difference for difference in all_found if difference is not None]
    first = min(differences, key=lambda difference: difference.unit, default=None)
    return Agreement(units, exact, reads, first)


def _first_state(
    errors: _Errors,
    both: Sequence[Pair],
    noise: Noise,
    epsilons: Mapping[str, float] | None,
) -> Disagreement | None:
    for one, two in both:
        worst: Disagreement | None = None
        # A fused optimizer has the state of zeros that another one makes in its first step, which a
        # GradScaler may leave out.
        of_all = {**two.sketches, **one.sketches}
        unpaired = one.digests.keys() ^ two.digests.keys()
        if missing := [name for name in unpaired if any(of_all[name])]:
            return Disagreement("state", one.unit, min(missing), math.inf)
        for name in one.digests.keys() - unpaired:
            if one.digests[name] == two.digests[name]:
                continue
            error = errors.of(name, one, two)
            allowed = 0.0
            if epsilons is not None:
                floor = _FLOOR_EPSILONS * epsilons.get(name, 0.0) * errors.size(name, one)
                allowed = max(_NOISE_FACTOR * noise.of(name, one.unit, errors.restored), floor)
            if error > allowed and (worst is None or error > worst.error):
                worst = Disagreement("state", one.unit, name, error, allowed)
        if worst is not None:
            return worst
    return None


def _lost_reads(both: Sequence[Pair]) -> Disagreement | None:
    """Whether fewer values are read in all: by more than what one of the steps may owe at the end,
    where they are read later."""
    owed = max((len(state.reads) for pair in both for state in pair), default=0)
    lost = sum(len(one.reads) - len(two.reads) for one, two in both)
    if lost <= owed:
        return None
    unit = next(one.unit for one, two in both if len(one.reads) > len(two.reads))
    return Disagreement("reads", unit)


def _first_read(
    both: Sequence[Pair], noise: Noise, matched: bool, bits: bool, restored: Sequence[int]
) -> Disagreement | None:
    for one, two in both if matched else ():
        error = max(_read_errors(one, two), default=0.0)
        known = noise.reads.until(one.unit - _last_equal(one.unit, restored))
        allowed = 0.0 if bits else max(_NOISE_FACTOR * known, _FLOOR_EPSILONS * _READ_EPSILON)
        if not error <= allowed:
            return Disagreement("read", one.unit, error=error, allowed=allowed)
    return None


def _other_batch(one: Sequence[StepState], other: Sequence[StepState]) -> Disagreement | None:
    """The batches of data loaders, one after the other: a patch may fetch one a little earlier."""
    of_one, of_other = list(_fetched(one)), list(_fetched(other))
    for (unit, batch), (_, another) in zip(of_one, of_other):
        if batch != another:
            return Disagreement("batch", unit)
    return None


def _fetched(states: Sequence[StepState]) -> Iterator[tuple[int, int]]:
    return ((state.unit, number) for state in states for number in state.fetched)


def _other_input(both: Sequence[Pair]) -> Disagreement | None:
    """The graphed function gets what the models got, if it did so in the first step."""
    steps = [pair for pair in both if pair[0].inputs and pair[1].inputs]
    seen = [bool(set(one.inputs) & set(two.inputs)) for one, two in steps]
    if not seen or not seen[0] or all(seen):
        return None
    return Disagreement("input", steps[seen.index(False)][0].unit)


def _read_errors(one: StepState, other: StepState) -> list[float]:
    """Relative differences of the values that the host read between two steps, in any order; where
    the other one read fewer, from the closest."""
    if len(one.reads) < len(other.reads):
        return []
    if len(one.reads) == len(other.reads):
        return [_off(a, b) for a, b in zip(sorted(one.reads), sorted(other.reads))]
    return [min(_off(a, b) for a in one.reads) for b in other.reads]


def _off(a: float, b: float) -> float:
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    error = abs(a - b) / max(abs(a), abs(b), _NORMAL)
    return math.inf if math.isnan(error) else error


class _Errors:
    """Differences of tensors, relative to how far each has moved from where it began: in the first
    step, or in the last one that began with the state of the reference.

    What moved in single steps counts as at least half as far as in the median of them: in one step
    of many, a bias of one element hardly moves at all, and any noise is much of that.
    """

    def __init__(self, reference: Sequence[StepState], restored: Sequence[int] = ()):
        self._reference, self.restored = reference, restored
        self._by_steps = bool(restored)
        self._begins = [state for state in reference[:1] if state.unit not in restored]
        self._begins += [state for state in reference if state.unit in restored]
        self._least: dict[tuple[str, bool], float] = {}

    def of(self, name: str, one: StepState, other: StepState) -> float:
        update = one.since == other.since and name in one.updates and name in other.updates
        if update:  # what the optimizer made of a gradient may be far off although that is not
            a, b = one.updates[name], other.updates[name]
        else:
            a, b = one.sketches[name], other.sketches.get(name, ())
        if len(a) != len(b):
            return math.inf
        distance = math.dist(a, b)
        # Zero for another sign of zero, or bits beyond what a sketch holds.
        return distance / self._scale(name, one, update) if distance else 0.0

    def size(self, name: str, one: StepState) -> float:
        """The norm of the tensor in the unit of these errors."""
        return math.hypot(*one.sketches[name]) / self._scale(name, one)

    def _scale(self, name: str, one: StepState, update: bool = False) -> float:
        moved = self._moved(name, one, update)
        if self._by_steps:
            key = name, update
            if key not in self._least:
                each = (self._moved(name, s, update) for s in self._reference if name in s.sketches)
                far = [distance for distance in each if distance]
                self._least[key] = median(far) / 2 if far else 0.0
            moved = max(moved, self._least[key])
        return max(moved or math.hypot(*one.sketches[name]), _NORMAL)

    def _moved(self, name: str, one: StepState, update: bool) -> float:
        if update:
            return math.hypot(*one.updates.get(name, ()))
        before = [state for state in self._begins if state.unit < one.unit]
        if not before or one.digests[name] == before[-1].digests.get(name):
            return 0.0
        then = before[-1].sketches.get(name)
        return 0.0 if then is None else math.dist(one.sketches[name], then)
