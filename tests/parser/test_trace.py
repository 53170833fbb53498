"""Tables of columns, and how they grow."""

from __future__ import annotations

import numpy as np

from launchscope.parser import columns as c
from launchscope.parser.rows import Rows
from launchscope.parser.trace import (
    Table,
    Texts,
    ints,
    is_among,
    quantile_of,
    unique,
    where,
)
from tests.builders import trace


def table() -> Table:
    names = Texts(np.array([1, 0, 1]), ("copy", "kernel"))
    return Table({c.NAME: names, c.START: np.array([3, 5, 5]), c.DUR: np.array([1, 2, 1])})


def test_a_mask_row_numbers_and_a_slice_choose_rows() -> None:
    for rows in (np.array([False, True, True]), np.array([1, 2]), slice(1, None)):
        chosen = table()[rows]
        assert len(chosen) == 2
        assert list(chosen[c.NAME]) == ["copy", "kernel"]
        assert chosen[c.START].tolist() == [5, 5]


def test_a_changed_column_is_not_changed_in_the_table_it_comes_from() -> None:
    before = table()
    after = before.assign(**{c.START: np.zeros(3), c.PID: np.ones(3)})
    assert before.columns == (c.NAME, c.START, c.DUR)
    assert before[c.START].tolist() == [3, 5, 5]
    assert after.columns == (c.NAME, c.START, c.DUR, c.PID)
    assert after[c.START].tolist() == [0, 0, 0]


def test_a_column_of_text_is_compared_row_by_row_and_asked_once_for_each_text() -> None:
    asked: list[str] = []

    def is_copy(name: str) -> bool:
        asked.append(name)
        return name == "copy"

    assert (table()[c.NAME] == "kernel").tolist() == [True, False, True]
    assert where(table()[c.NAME], is_copy).tolist() == [False, True, False]
    assert asked == ["copy", "kernel"]


def test_the_frame_has_the_columns_and_its_text_as_categories() -> None:
    read = trace().step().launch(name="one").launch(name="two").end().trace()
    frame = read.activities.frame()
    assert tuple(frame.columns) == read.activities.columns == c.ACTIVITY_COLUMNS
    assert list(frame[c.NAME]) == ["one", "two"]
    assert str(frame[c.NAME].dtype) == "category"
    assert frame[c.START].tolist() == ints(read.activities, c.START).tolist()


def test_numbers_that_fit_take_32_bits_and_larger_ones_are_kept_whole() -> None:
    rows = Rows(c.RANGE_COLUMNS)
    for start, pid in ((20, 7), (10, 2**40), (10, -(2**40))):
        rows.add(
            {
                c.NAME: ["a"], c.START: np.array([start]), c.DUR: np.array([5]),
                c.PID: np.array([pid]), c.TID: np.array([3], np.int32),
            }
        )  # fmt: skip
    found = rows.table()
    assert found.columns == c.RANGE_COLUMNS
    assert found[c.PID].tolist() == [2**40, -(2**40), 7]
    assert found[c.END].tolist() == [15, 15, 25]
    assert (found[c.PID].itemsize, found[c.TID].itemsize, found[c.DUR].itemsize) == (8, 4, 4)
    assert ints(found, c.TID).dtype == np.int64


def test_what_stands_in_for_numpy_gives_what_numpy_gives_to_the_last_digit() -> None:
    random = np.random.default_rng(0)
    for size in range(40):
        values, known = random.integers(-9, 9, (2, size))
        for some in (known, known[:0], known * 10**15):
            assert unique(some).tolist() == np.unique(some).tolist()
            assert is_among(values, some).tolist() == np.isin(values, some).tolist()
            assert not len(is_among(values[:0], some))
        times = random.exponential(10.0 ** random.integers(-3, 6), size + 1)
        for share in (0.25, 0.75, 0.95):
            assert quantile_of(times, share) == np.quantile(times, share)
        assert np.isnan(quantile_of([*times, np.nan], 0.25))
