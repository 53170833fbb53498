"""Interval arithmetic against a count of single ticks."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from launchscope.analysis.timeline.intervals import Cover, median_by_group, union_ns_by_group

spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 15), st.integers(-1, 3)), max_size=30)


def ticks(of: list[tuple[int, int, int]]) -> set[int]:
    return {tick for begin, length, _ in of for tick in range(begin, begin + length)}


# Of nanoseconds: small ones, and such that times of five groups just fit in one number.
SCALES = st.sampled_from((1, 2 * 10**16))


@settings(deadline=None)  # machines that run tests are shared
@given(spans, SCALES)
def test_the_union_by_group_counts_every_tick_once(
    of: list[tuple[int, int, int]], scale: int
) -> None:
    start, length, group = (np.array([span[i] for span in of], np.int64) for i in range(3))
    found = union_ns_by_group(scale * start, scale * (start + length), group, 3)
    counts = [len(ticks([span for span in of if span[2] == g])) for g in range(3)]
    assert list(found) == [scale * count for count in counts]


@settings(deadline=None)  # machines that run tests are shared
@given(
    spans, st.lists(st.tuples(*[st.integers(-5, 90)] * 2, st.integers(-2, 4)), max_size=5), SCALES
)
def test_a_cover_answers_for_each_group_as_a_set_of_ticks_would(
    of: list[tuple[int, int, int]], asked: list[tuple[int, int, int]], scale: int
) -> None:
    start, length, group = (np.array([span[i] for span in of], np.int64) for i in range(3))
    cover = Cover.of(scale * start, scale * (start + length), group)
    begin, end, wanted = (np.array([span[i] for span in asked], np.int64) for i in range(3))
    found = cover.inside(scale * begin, scale * end, wanted)
    assert list(found) == [
        scale * len(ticks([span for span in of if span[2] == g]) & set(range(b, e)))
        for b, e, g in asked
    ]


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 3)), max_size=20))
def test_the_median_by_group_is_the_median_of_each_group(rows: list[tuple[int, int]]) -> None:
    values, group = np.array(rows, np.int64).reshape(-1, 2).T
    found = median_by_group(values / 3, group, 4)
    for number, median in enumerate(found):
        mine = values[group == number] / 3
        assert median == np.median(mine) if len(mine) else np.isnan(median)
