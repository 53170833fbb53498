"""The repeating part of a sequence of launches: how long a step is where nothing marks one.

Each launch has a code (which kernel, copy or set it starts). For a period p the code p places
earlier is mostly the same, in spite of a prologue, an epilogue and steps that differ now and then.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from launchscope.parser.trace import Bools, Ints

MIN_STEPS = 3
# The steps have to cover this share of the sequence.
MIN_COVERED = 0.6
# And of the device time: what repeats beside one long graph launch is no step.
MIN_DEVICE = 0.5
# A shorter period may leave this many more places unexplained than the best one: a factor, because
# an odd step costs each period about as many places, and a few more. With larger values the layers
# of a deep net would count as its steps.
_SLACK, _FEW = 1.25, 4
_CANDIDATES = 12  # for each width of window
_WINDOWS = (2, 8, 32, 128)


class Period(Struct, frozen=True):
    """`length` launches repeat, and steps begin at the rows `starts`. `follows[i]`: step i begins
    where step i-1 ends."""

    length: int
    starts: Ints
    follows: Bools


def find_period(codes: Ints, gap: Ints, device: Ints, begins: Bools) -> Period | None:
    """The smallest period that explains the sequence; None without a clear one.

    `gap[i]` is the host time before launch i: a step begins where its median is longest, or with
    the launch that `begins` one, if the period has one such launch. `device[i]` is the device time
    of what it starts.
    """
    if len(codes) < MIN_STEPS:
        return None
    # Per candidate: the places that differ from the place one period earlier.
    missed = {p: int((codes[p:] != codes[:-p]).sum()) for p in _candidates(codes)}
    most = _SLACK * min(missed.values(), default=0) + _FEW
    lengths = sorted(p for p, places in missed.items() if places <= most)
    found = filter(None, (_steps(codes, gap, begins, length) for length in lengths))
    return next((period for period in found if _explains(period, device)), None)


def _explains(period: Period, device: Ints) -> bool:
    rows = period.starts[:, None] + np.arange(period.length)
    return float(device[rows].sum()) >= MIN_DEVICE * float(device.sum())


def _candidates(codes: Ints) -> list[int]:
    """Distances at which equal stretches of several widths follow one another most often."""
    count = len(codes)
    found: set[int] = set()
    for width in _WINDOWS:
        if 2 * width > count:
            break
        keys = _hashes(codes, width)
        order = np.argsort(keys, kind="stable")
        same = keys[order][1:] == keys[order][:-1]
        distance = np.diff(order)[same]
        distance = distance[distance <= count // MIN_STEPS]
        lengths, often = np.unique(distance, return_counts=True)
        # A long distance covers more with each occurrence.
        ranked = np.argsort(-often * np.minimum(lengths, width), kind="stable")
        found.update(int(length) for length in lengths[ranked[:_CANDIDATES]])
        found.update(int(length) for length in lengths[np.argsort(-often)[:_CANDIDATES]])
    return sorted(found)


def _steps(codes: Ints, gap: Ints, begins: Bools, length: int) -> Period | None:
    """Where the period's most typical stretch occurs, rotated to where a step begins."""
    same = codes[length:] == codes[:-length]
    first, through = _longest_run(same)
    repeats = (through - first) // length + 1  # whole periods in the stretch
    if repeats < 2:
        return None
    rows = first + np.arange(repeats * length).reshape(repeats, length)
    # The first row of all has no gap before it that means anything.
    waits = gap[rows[1:]] if first == 0 and repeats > 2 else gap[rows]
    found = _from(codes, first + int(np.argmax(np.median(waits, axis=0))), length)
    known = np.flatnonzero(begins[rows].mean(axis=0) > 0.5)
    if found is None or len(known) != 1:
        return found
    return _from(codes, first + int(known[0]), length) or found


def _from(codes: Ints, row: int, length: int) -> Period | None:
    """The period whose steps are as the one that begins at this row; None if they are too few."""
    if row + length > len(codes):
        return None
    keys = _hashes(codes, length)
    starts = _without_overlap(np.flatnonzero(keys == keys[row]), length)
    if len(starts) < MIN_STEPS or length * len(starts) < MIN_COVERED * len(codes):
        return None
    return Period(length, starts, np.diff(starts, prepend=-1) == length)


def _longest_run(same: Bools) -> tuple[int, int]:
    """Begin and end of the longest run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], same, [False])))).tolist()
    return max(zip(edges[::2], edges[1::2]), key=lambda run: run[1] - run[0], default=(0, 0))


def _without_overlap(places: Ints, length: int) -> Ints:
    """The places that do not overlap, from the first on."""
    kept: list[int] = []
    for place in places.tolist():
        if not kept or place - kept[-1] >= length:
            kept.append(place)
    return np.asarray(kept, np.int64)


def _hashes(codes: Ints, width: int) -> Ints:
    """A hash of the `width` codes from each place on: each code becomes a random word w, and the
    sum of w * B^k modulo 2^64 is read off one running sum and scaled back by the inverse of B."""
    count = len(codes)
    random = np.random.default_rng(0)
    words = random.integers(1, 2**63, size=int(codes.max()) + 1, dtype=np.uint64)
    base = np.uint64(0x9E3779B97F4A7C15)
    inverse = np.uint64(pow(int(base), -1, 2**64))
    with np.errstate(over="ignore"):
        powers = np.cumprod(np.full(count, base, np.uint64))
        back = np.cumprod(np.full(count, inverse, np.uint64))
        total = np.concatenate((np.zeros(1, np.uint64), np.cumsum(words[codes] * powers)))
        hashes = (total[width:] - total[:-width]) * back[: count - width + 1]
    found: Ints = hashes.view(np.int64)
    return found
