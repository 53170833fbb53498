"""Vectorized arithmetic on half-open intervals [start, end) of integer nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from launchscope.parser.trace import Ints


def union_ns_by_group(start: Ints, end: Ints, group: Ints, groups: int) -> Ints:
    """Length of the union of intervals, for each group 0..groups-1; other groups are left out."""
    kept = np.flatnonzero((group >= 0) & (group < groups))
    order = kept[np.lexsort((start[kept], group[kept]))]
    start, end, group = start[order], end[order], group[order]
    reach = pd.Series(end).groupby(group).cummax().groupby(group)
    covered = reach.shift(fill_value=np.iinfo(np.int64).min).to_numpy(np.int64)
    total = np.zeros(groups, np.int64)
    # An interval adds the part of it that its group has not covered yet.
    np.add.at(total, group, np.maximum(0, end - np.maximum(start, covered)))
    return total


@dataclass(frozen=True)
class Cover:
    """A set of disjoint intervals, sorted; answers how much of a span it covers."""

    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, start: Ints, end: Ints) -> Cover:
        """The union of any intervals, in any order."""
        order = np.argsort(start, kind="stable")
        start, reach = start[order], np.maximum.accumulate(end[order])
        opens = np.append(True, start[1:] > reach[:-1])[: len(start)]
        return cls(start[opens], reach[np.append(opens, True)[1:]])

    def until(self, time: Ints) -> Ints:
        """Covered nanoseconds before each time."""
        if not len(self.starts):
            return np.zeros(len(time), np.int64)
        lengths = self.ends - self.starts
        before = np.cumsum(lengths) - lengths
        index = np.searchsorted(self.starts, time, side="right") - 1
        inside = np.clip(time - self.starts[index], 0, lengths[index])
        return np.where(index < 0, 0, before[index] + inside)

    def inside(self, start: Ints, end: Ints) -> Ints:
        """Covered nanoseconds of each span; 0 for a span that is empty or reversed."""
        return np.where(end > start, self.until(end) - self.until(start), 0)
