"""The interval of a shift: its ranks against the published ones, its coverage, and its power."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product

import pytest

from launchscope.gate.interval import fewest_pairs, shift

_CHECKS = 2000
_NOISES: dict[str, Callable[[random.Random], float]] = {
    "normal": lambda chance: chance.gauss(0, 0.03),
    "heavy tails": lambda chance: chance.gauss(0, 0.03) / max(1e-3, abs(chance.gauss(0, 1))),
    "now and then busy": lambda chance: 0.5 if chance.random() < 0.3 else chance.gauss(0, 0.01),
}


def pairs(chance: random.Random, noise: Callable[[random.Random], float], n: int) -> list[float]:
    """Differences of unchanged code: which of two runs comes first is drawn, while the machine
    drifts and the second run of a pair is slower."""
    found = []
    for pair in range(n):
        first, second = noise(chance) + 0.01 * pair, noise(chance) + 0.01 * pair + 0.02
        found.append(second - first if chance.random() < 0.5 else first - second)
    return found


def test_the_interval_spans_the_walsh_averages_of_the_published_ranks() -> None:
    # Hollander, Wolfe and Chicken, table A.4: with n = 10, P(T+ >= 52) = 0.005.
    ten = [float(2**i) for i in range(10)]
    walsh = sorted((ten[i] + ten[j]) / 2 for i, j in product(range(10), repeat=2) if i <= j)
    found = shift(ten, 0.99)
    assert (found.low, found.high) == (walsh[3], walsh[-4])
    eight = shift(list(range(8)), 0.99)
    assert (eight.middle, eight.low, eight.high) == (3.5, 0, 7)


def test_too_few_pairs_have_an_estimate_and_no_interval() -> None:
    found = shift([1.0, 2.0, 3.0], 0.99)
    assert (found.middle, found.low, found.high) == (2.0, None, None)
    assert (fewest_pairs(0.99), fewest_pairs(0.95)) == (8, 6)
    assert shift([0.0] * 7, 0.99).low is None


@pytest.mark.parametrize("noise", _NOISES)
def test_unchanged_code_is_outside_the_interval_no_more_often_than_stated(noise: str) -> None:
    chance = random.Random(1)
    found = [shift(pairs(chance, _NOISES[noise], 10), 0.99) for _ in range(_CHECKS)]
    slower = sum(one.low is not None and one.low > 0 for one in found)
    faster = sum(one.high is not None and one.high < 0 for one in found)
    # 0.5 % each; four standard deviations of 2000 draws are 0.6 %.
    assert max(slower, faster) / _CHECKS < 0.011


def test_ten_percent_are_caught_where_the_interval_of_unchanged_code_is_narrow() -> None:
    chance = random.Random(2)
    caught: dict[bool, list[bool]] = {True: [], False: []}
    for _ in range(_CHECKS):
        deviation = chance.uniform(0.005, 0.06)
        same = shift([chance.gauss(0, deviation) for _ in range(10)], 0.99)
        slower = shift([chance.gauss(0.0953, deviation) for _ in range(10)], 0.99)
        assert None not in (same.low, same.high, slower.low)
        half = (same.high - same.low) / 2  # type: ignore[operator]
        if half < 0.05:
            caught[half < 0.02].append(slower.low > 0.0488)  # type: ignore[operator]
    assert min(map(len, caught.values())) > 300
    narrow, wider = (sum(found) / len(found) for found in caught.values())
    assert narrow > 0.98
    assert wider > 0.6  # half of the interval comes close to what is left of the 10 %
