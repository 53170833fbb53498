"""Growing inputs differ from shapes that merely change, and from a few that come back."""

from __future__ import annotations

import pytest

from launchscope.model import Shapes
from launchscope.rules.shape_change import every_step_differs, growth
from tests.rules.cases import shapes
from tests.rules.profiles import profile

CACHE = shapes(*(f"(1, 1) int64, (1, 8, {n}, 32) float32, (1, {n}) bool" for n in (61, 62, 63)))


def test_a_cache_grows_along_one_dimension() -> None:
    grown = growth(profile(shapes=CACHE))
    assert grown is not None
    assert (str(grown), grown.dimension, grown.tensors) == (
        "(1, 8, 61, 32) -> (1, 8, 62, 32)",
        2,
        2,
    )


@pytest.mark.parametrize(
    "change",
    [
        shapes("(4, 83) int64", "(4, 86) int64", "(4, 59) int64"),
        shapes("(4, 8) int64", "(4, 10) int64", "(4, 12) int64"),
        shapes("(4, 8) int64", "(5, 9) int64"),
        shapes("(4, 9) int64", "(4, 8) int64"),
        shapes("(4, 8) int64", "(4, 9) int64", "(5, 9) int64"),
        shapes("(4, 8) int64", "(4, 9) float32"),
        shapes("(4, 8) int64", "(4, 8, 1) int64"),
        shapes("(4, 8) int64", "(4, 9) int64, (1,) int64"),
        shapes("(4, 8) int64", "(4, 9) int64", steps=2),
        shapes("(4, 8) int64"),
        shapes("", ""),
    ],
    ids=[
        "any length", "by two", "two dimensions", "shrinks", "another dimension", "dtype", "rank",
        "more inputs", "come back", "one", "no inputs",
    ],
)  # fmt: skip
def test_other_changes_are_no_growth(change: Shapes) -> None:
    assert growth(profile(shapes=change)) is None


def two(usual: str, other: str) -> Shapes:
    return shapes(usual, other, steps=2)


def test_shapes_that_come_back_do_not_differ_in_every_step() -> None:
    assert not every_step_differs(profile(shapes=two("(8,) int64", "(9,) int64")))
    assert every_step_differs(profile(shapes=shapes("(8,) int64", "(19,) int64")))
