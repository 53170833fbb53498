"""Interval arithmetic against a count of single ticks."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from launchscope.analysis.timeline.intervals import Cover, union_ns_by_group

spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 15), st.integers(-1, 3)), max_size=30)


def ticks(of: list[tuple[int, int, int]]) -> set[int]:
    return {tick for begin, length, _ in of for tick in range(begin, begin + length)}


@settings(deadline=None)  # machines that run tests are shared
@given(spans)
def test_the_union_by_group_counts_every_tick_once(of: list[tuple[int, int, int]]) -> None:
    start, length, group = (np.array([span[i] for span in of], np.int64) for i in range(3))
    found = union_ns_by_group(start, start + length, group, 3)
    assert list(found) == [len(ticks([span for span in of if span[2] == g])) for g in range(3)]


@settings(deadline=None)  # machines that run tests are shared
@given(spans, st.lists(st.tuples(*[st.integers(-5, 90)] * 2, st.integers(-2, 4)), max_size=5))
def test_a_cover_answers_for_each_group_as_a_set_of_ticks_would(
    of: list[tuple[int, int, int]], asked: list[tuple[int, int, int]]
) -> None:
    start, length, group = (np.array([span[i] for span in of], np.int64) for i in range(3))
    cover = Cover.of(start, start + length, group)
    begin, end, wanted = (np.array([span[i] for span in asked], np.int64) for i in range(3))
    found = cover.inside(begin, end, wanted)
    assert list(found) == [
        len(ticks([span for span in of if span[2] == g]) & set(range(b, e))) for b, e, g in asked
    ]
