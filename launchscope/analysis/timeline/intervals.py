"""Vectorized arithmetic on half-open intervals [start, end) of integer nanoseconds, also on those
that lie in one another, as operators do."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from launchscope.parser.trace import Floats, Ints, distinct


def union_ns_by_group(start: Ints, end: Ints, group: Ints, groups: int) -> Ints:
    """Length of the union of intervals, for each group 0..groups-1; other groups are left out."""
    kept = (group >= 0) & (group < groups)
    union = Cover.of(start[kept], end[kept], group[kept])
    total = np.zeros(groups, np.int64)
    np.add.at(total, union.groups, union.ends - union.starts)
    return total


def running_max(values: Ints, group: Ints) -> Ints:
    """The largest value of its group up to each row, for rows sorted by group."""
    if not len(values) or group[0] == group[-1]:
        return np.maximum.accumulate(values)
    number = np.cumsum(np.diff(group, prepend=group[:1]) != 0)
    least = int(values.min())
    span = int(values.max()) - least + 1
    # Every group lies above the one before it.
    lift: Ints = number * span - least
    return np.maximum.accumulate(values + lift) - lift


def median_by_group(values: Floats | Ints, group: Ints, groups: int) -> Floats:
    """The median of the values of each group 0..groups-1; NaN for a group without any."""
    ordered = np.append(values[np.lexsort((values, group))], np.nan)
    count = np.bincount(group, minlength=groups)
    first = np.cumsum(count) - count
    low, high = (
        np.where(count, first + half, len(values)) for half in ((count - 1) // 2, count // 2)
    )
    found: Floats = (ordered[low] + ordered[high]) / 2
    return found


def latest(start: Ints, start_group: Ints, time: Ints, group: Ints) -> Ints:
    """For each time: the row of the last start of its group that is not after it, -1 for none.
    The starts are sorted by group, and then by time."""
    if not len(start):
        return np.full(len(time), -1)
    if start_group[0] == start_group[-1]:
        row = np.searchsorted(start, time, "right") - 1
        return np.where(group == start_group[0], row, -1)
    opens = np.append(True, np.diff(start_group) != 0)
    groups, number = start_group[opens], np.cumsum(opens) - 1
    least = int(start.min())
    span = int(start.max()) - least + 2
    # Every group lies above the one before it, which a time before all starts falls back to.
    asked = np.clip(time - (least - 1), 0, span - 1) + np.searchsorted(groups, group) * span
    row = np.searchsorted(start - (least - 1) + number * span, asked, "right") - 1
    return np.where((row >= 0) & (start_group[row] == group), row, -1)


class Cover(Struct, frozen=True):
    """Groups of disjoint intervals, sorted by group and start; answers how much of a span its
    group covers. Groups are any numbers; without them all intervals are one group."""

    starts: Ints
    ends: Ints
    groups: Ints

    @classmethod
    def of(cls, start: Ints, end: Ints, group: Ints | None = None) -> Cover:
        """The union of any intervals of each group, in any order."""
        group = _one_group(start) if group is None else group
        alone = (group == group[:1]).all()
        order = np.argsort(start, kind="stable") if alone else np.lexsort((start, group))
        start, group = start[order], group if alone else group[order]
        reach = running_max(end[order], group)
        opens = np.append(True, (start[1:] > reach[:-1]) | (np.diff(group) != 0))[: len(start)]
        return cls(start[opens], reach[np.append(opens, True)[1:]], group[opens])

    def until(self, time: Ints, group: Ints | None = None) -> Ints:
        """Nanoseconds that its group covers before each time."""
        group = _one_group(time) if group is None else group
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


def _one_group(rows: Ints) -> Ints:
    """The same group for all rows, in no memory."""
    return np.broadcast_to(np.int64(0), len(rows))


class Nesting(Struct, frozen=True):
    """Rows of half-open intervals in any order; `level` 1 lies in no other of its thread."""

    start: Ints
    end: Ints
    thread: Ints
    level: Ints

    @classmethod
    def of(cls, start: Ints, end: Ints, thread: Ints) -> Nesting:
        order, holds = np.lexsort((-end, start, thread)), end > start
        begun = np.empty(len(start), np.int64)  # up to its own begin, itself included
        begun[order] = np.cumsum(holds[order])
        ended = count_until(end[holds], thread[holds], start, thread)
        return cls(start, end, thread, begun - ended + ~holds)

    def innermost(self, time: Ints, thread: Ints) -> Ints:
        """The row of the innermost interval that holds each time of a thread, -1 for none."""
        begun = count_until(self.start, self.thread, time, thread)
        level = begun - count_until(self.end, self.thread, time, thread)
        # A number for each thread and level.
        _, number = distinct(np.append(self.thread, thread))
        group = number * (int(self.level.max(initial=0)) + 1)
        own, asked = group[: len(self.start)] + self.level, group[len(self.start) :] + level
        row = last_begun(self.start, own, time, np.where(level > 0, asked, -1))
        return np.where(time < np.append(self.end, 0)[row], row, -1)

    def at_level(self, level: int, time: Ints, thread: Ints) -> Ints:
        """The row of the interval at this level that holds each time of a thread, -1 for none."""
        rows = np.flatnonzero(self.level == level)
        found = last_begun(self.start[rows], self.thread[rows], time, thread)
        row = np.append(rows, -1)[found]
        return np.where(time < np.append(self.end, 0)[row], row, -1)


def last_begun(start: Ints, group: Ints, time: Ints, asked: Ints) -> Ints:
    """For each time the row of the last start of its group, in any order, that is not after it; -1
    for none."""
    order = np.lexsort((start, group))
    return np.append(order, -1)[latest(start[order], group[order], time, asked)]


def count_until(time: Ints, thread: Ints, asked: Ints, asked_thread: Ints) -> Ints:
    """How many times of threads with smaller numbers, and of the same thread up to each asked time
    (inclusive), there are."""
    order = np.lexsort((np.append(time, asked), np.append(thread, asked_thread)))
    is_asked = order >= len(time)
    found = np.empty(len(asked), np.int64)
    found[order[is_asked] - len(time)] = np.cumsum(~is_asked)[is_asked]
    return found
