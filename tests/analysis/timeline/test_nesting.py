"""Intervals that lie in one another, against a search by hand."""

from __future__ import annotations

import random

import numpy as np

from launchscope.analysis.timeline.intervals import Nesting, count_until


def nested(seed: int) -> tuple[list[tuple[int, int, int]], Nesting]:
    """Calls of three threads, as a stack makes them, in a random order."""
    rng = random.Random(seed)
    calls: list[tuple[int, int, int]] = []
    for thread in (7, 3, 90):
        now = 0
        open_: list[int] = []
        for _ in range(60):
            now += rng.randint(1, 3)
            if open_ and rng.random() < 0.5:
                calls.append((open_.pop(), now, thread))
            else:
                open_.append(now)
        while open_:
            now += 1
            calls.append((open_.pop(), now, thread))
    rng.shuffle(calls)
    start, end, threads = (np.array(column, np.int64) for column in zip(*calls))
    return calls, Nesting.of(start, end, threads)


def test_levels_and_holders_are_those_of_a_search_by_hand() -> None:
    for seed in range(5):
        calls, nesting = nested(seed)
        for row, (start, end, thread) in enumerate(calls):
            around = [c for c in calls if c[2] == thread and c[0] <= start and end <= c[1]]
            assert nesting.level[row] == len(around)
        asked = [(time, thread) for thread in (3, 7, 8, 90) for time in range(-1, 130)]
        time, thread_of = (np.array(column, np.int64) for column in zip(*asked))
        innermost = nesting.innermost(time, thread_of)
        outermost = nesting.at_level(1, time, thread_of)
        for at, (moment, thread) in enumerate(asked):
            holding = [i for i, c in enumerate(calls) if c[2] == thread and c[0] <= moment < c[1]]
            holding.sort(key=lambda i: calls[i][1] - calls[i][0])
            assert innermost[at] == (holding[0] if holding else -1)
            assert outermost[at] == (holding[-1] if holding else -1)


def test_an_empty_interval_holds_nothing_and_lies_in_the_one_around_it() -> None:
    start, end = np.array([0, 5, 5]), np.array([10, 5, 8])
    nesting = Nesting.of(start, end, np.zeros(3, np.int64))
    assert nesting.level.tolist() == [1, 3, 2]
    assert nesting.innermost(np.array([5, 9]), np.zeros(2, np.int64)).tolist() == [2, 0]


def test_no_intervals_hold_nothing() -> None:
    none = np.zeros(0, np.int64)
    nesting = Nesting.of(none, none, none)
    assert nesting.innermost(np.array([3]), np.array([1])).tolist() == [-1]
    assert count_until(none, none, np.array([3]), np.array([1])).tolist() == [0]
