"""The Hodges-Lehmann estimate of a shift from paired runs, and its confidence interval.

A pair is one run of either version, in random order. If the versions take the same time, the sign
of each difference is therefore a fair coin, however the machine behaves, and the signed-rank
statistic T+ of n differences has the distribution of a sum that takes each of 1, 2, ..., n with
probability 1/2. The interval spans the Walsh averages (d_i + d_j) / 2, i <= j, from the k-th
smallest to the k-th largest, with the largest k for which 2 P(T+ <= k - 1) is at most the error
allowed (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 3rd ed., 3.1 to 3.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from statistics import median

from launchscope.frozen import dataclass


@dataclass(frozen=True)
class Interval:
    """`low` and `high` are None where there are too few differences for the confidence."""

    middle: float
    low: float | None
    high: float | None


def shift(differences: Sequence[float], confidence: float) -> Interval:
    """The shift behind these differences (at least one). `confidence` is a share:
    0.99 takes at least 8 differences."""
    n = len(differences)
    walsh = sorted((differences[i] + differences[j]) / 2 for i in range(n) for j in range(i, n))
    rank = _rank(n, 1.0 - confidence)
    middle = median(walsh)
    return Interval(middle, walsh[rank - 1], walsh[-rank]) if rank else Interval(middle, None, None)


def fewest_pairs(confidence: float) -> int:
    """The fewest differences that give an interval of this confidence."""
    return next(n for n in range(1, 64) if _rank(n, 1.0 - confidence))


@cache
def _rank(n: int, error: float) -> int:
    """The k above for n differences; 0 if there is none."""
    ways = [1]  # to reach each sum with the ranks so far
    for rank in range(1, n + 1):
        ways = [
            (ways[total] if total < len(ways) else 0) + (ways[total - rank] if total >= rank else 0)
            for total in range(len(ways) + rank)
        ]
    tail, found = 0, 0
    for count in ways:
        tail += count
        if 2 * tail > error * 2**n:
            return found
        found += 1
    return found
