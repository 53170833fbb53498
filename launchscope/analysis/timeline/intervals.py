"""Vectorised arithmetic on half-open intervals [start, end) of integer nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from launchscope.parser.trace import Ints


def union_ns_by_group(start: Ints, end: Ints, group: Ints, groups: int) -> Ints:
    """Length of the union of intervals, for each group 0..groups-1; other groups are left out."""
    kept = (group >= 0) & (group < groups)
    start, end, group = start[kept], end[kept], group[kept]
    order = np.lexsort((start, group))
    start, end, group = start[order], end[order], group[order]
    reach = pd.Series(end).groupby(group).cummax().to_numpy(np.int64)
    # What an interval adds is what lies beyond all that its group covered before it.
    first = np.ones(len(group), bool)
    first[1:] = group[1:] != group[:-1]
    covered = np.zeros(len(group), np.int64)
    covered[~first] = reach[np.flatnonzero(~first) - 1]
    added = np.where(first, end - start, np.maximum(0, end - np.maximum(start, covered)))
    total = np.zeros(groups, np.int64)
    np.add.at(total, group, added)
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
        start, end = start[order], end[order]
        if not len(start):
            return cls(start, end)
        reach = np.maximum.accumulate(end)
        opens = np.ones(len(start), bool)
        opens[1:] = start[1:] > reach[:-1]
        closes = np.append(np.flatnonzero(opens)[1:] - 1, len(start) - 1)
        return cls(start[opens], reach[closes])

    def until(self, time: Ints) -> Ints:
        """Covered nanoseconds before each time."""
        if not len(self.starts):
            return np.zeros(len(time), np.int64)
        lengths = self.ends - self.starts
        before = np.concatenate(([0], np.cumsum(lengths)))
        index = np.searchsorted(self.starts, time, side="right") - 1
        inside = np.clip(time - self.starts[np.maximum(index, 0)], 0, lengths[index])
        return np.where(index < 0, 0, before[np.maximum(index, 0)] + inside)

    def inside(self, start: Ints, end: Ints) -> Ints:
        """Covered nanoseconds of each span; 0 for a span that is empty or reversed."""
        return np.where(end > start, self.until(end) - self.until(start), 0)
