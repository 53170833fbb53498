"""Intervals of threads that lie in one another, as operators, Python calls and modules do."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from launchscope.analysis.timeline.intervals import latest
from launchscope.parser.trace import Ints, distinct


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
