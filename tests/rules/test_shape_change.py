"""Growing inputs differ from shapes that merely change, and from a few that come back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launchscope.model import Shapes
from launchscope.rules import find_rule
from launchscope.rules.shape_change import every_step_differs, growth, shorter_batch
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


@pytest.mark.parametrize("turned", [False, True])
def test_the_last_batch_of_an_epoch_is_left_out_not_padded(turned: bool) -> None:
    epoch = two(
        "(32, 8) float32, (5,) int64, (32,) int64", "(16, 8) float32, (5,) int64, (16,) int64"
    )
    if turned:
        epoch = replace(epoch, signatures=epoch.signatures[::-1])
    assert shorter_batch(profile(shapes=epoch)) == (32, 16)
    rule = find_rule("LS010")
    assert rule is not None
    (finding,) = rule.check(profile(shapes=epoch))
    assert finding.title == (
        "One of 3 inspected steps had smaller inputs: 16 instead of 32 in the first dimension"
    )
    assert "drop_last=True" in finding.advice


@pytest.mark.parametrize(
    "change",
    [
        two("(32, 8) float32", "(32, 5) float32"),
        two("(16, 8) float32", "(32, 8) float32"),
        Shapes(False, tuple(replace(s, steps=2) for s in two("(32, 8)", "(16, 8)").signatures)),
        two("(32, 8) float32, (32,) int64", "(16, 8) float32, (31,) int64"),
        two("() float32", "(3,) float32"),
        two("(32, 8) float32", "(16, 8) int64"),
        shapes("(32, 8) float32", "(16, 8) float32"),
        shapes("(32, 8) float32"),
    ],
    ids=["longer", "larger", "as often", "two sizes", "rank", "dtype", "each once", "one"],
)
def test_other_changes_are_no_last_batch(change: Shapes) -> None:
    assert shorter_batch(profile(shapes=change)) is None


def test_shapes_that_come_back_do_not_differ_in_every_step() -> None:
    assert not every_step_differs(profile(shapes=two("(8,) int64", "(9,) int64")))
    assert every_step_differs(profile(shapes=shapes("(8,) int64", "(19,) int64")))
