"""How well a median is known."""

from __future__ import annotations

import math
from collections.abc import Sequence

_ERROR = 0.05


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """The order statistics between which the median lies with 95 % confidence, whatever the
    distribution is; the least and the largest value where there are too few for that."""
    ordered, n = sorted(values), len(values)
    below, rank = 1.0 / 2**n, 0  # the chance that no value lies below the median
    while 2 * below <= _ERROR:
        rank += 1
        below += math.comb(n, rank) / 2**n
    rank = max(rank - 1, 0)
    return ordered[rank], ordered[-1 - rank]
