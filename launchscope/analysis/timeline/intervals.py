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


def latest(start: Ints, start_group: Ints, time: Ints, group: Ints) -> Ints:
    """For each time: the row of the last start of its group that is not after it, -1 for none."""
    count = len(start)
    order = np.lexsort((np.append(start, time), np.append(start_group, group)))
    asked = order >= count
    last = np.maximum.accumulate(np.where(asked, -1, np.arange(len(order))))[asked]
    row = np.empty(len(time), np.int64)
    row[order[asked] - count] = np.where(last < 0, -1, order[last])
    return np.where((row >= 0) & (np.append(start_group, 0)[row] == group), row, -1)


@dataclass(frozen=True)
class Cover:
    """Groups of disjoint intervals, sorted by group and start; answers how much of a span its
    group covers. Groups are any numbers; without them all intervals are one group."""

    starts: Ints
    ends: Ints
    groups: Ints

    @classmethod
    def of(cls, start: Ints, end: Ints, group: Ints | None = None) -> Cover:
        """The union of any intervals of each group, in any order."""
        group = np.zeros(len(start), np.int64) if group is None else group
        order = np.lexsort((start, group))
        start, group = start[order], group[order]
        reach = pd.Series(end[order]).groupby(group).cummax().to_numpy(np.int64)
        opens = np.append(True, (start[1:] > reach[:-1]) | (np.diff(group) != 0))[: len(start)]
        return cls(start[opens], reach[np.append(opens, True)[1:]], group[opens])

    def until(self, time: Ints, group: Ints | None = None) -> Ints:
        """Nanoseconds that its group covers before each time."""
        group = np.zeros(len(time), np.int64) if group is None else group
        if not len(self.starts):
            return np.zeros(len(time), np.int64)
        lengths = self.ends - self.starts
        before = np.cumsum(lengths) - lengths
        before -= np.maximum.accumulate(np.where(np.diff(self.groups, prepend=-1) != 0, before, 0))
        index = latest(self.starts, self.groups, time, group)
        inside = np.clip(time - self.starts[index], 0, lengths[index])
        return np.where(index < 0, 0, before[index] + inside)

    def inside(self, start: Ints, end: Ints, group: Ints | None = None) -> Ints:
        """Nanoseconds of each span that its group covers; 0 for one that is empty or reversed."""
        return np.where(end > start, self.until(end, group) - self.until(start, group), 0)
