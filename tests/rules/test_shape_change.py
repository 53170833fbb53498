"""Growing inputs differ from shapes that merely change, and from a few that come back."""

from __future__ import annotations

import pytest

from launchscope.model import Shapes, ShapeSignature, StepKind
from launchscope.rules import find_rule
from launchscope.rules.shape_change import every_step_differs, growth, shorter_batch
from tests.rules.profiles import profile
from tests.shapes import tensors


def seen(*inputs: str, steps: int = 1) -> Shapes:
    return Shapes(len(inputs) == 1, tuple(ShapeSignature(steps, tensors(text)) for text in inputs))


CACHE = seen(*(f"(1, 1) int64, (1, 8, {n}, 32) float32, (1, {n}) bool" for n in (61, 62, 63)))


def test_a_cache_grows_along_one_dimension() -> None:
    grown = growth(profile(shapes=CACHE))
    assert grown is not None
    assert (str(grown), grown.dimension, grown.tensors) == (
        "(1, 8, 61, 32) -> (1, 8, 62, 32)",
        2,
        2,
    )


@pytest.mark.parametrize(
    "shapes",
    [
        seen("(4, 83) int64", "(4, 86) int64", "(4, 59) int64"),
        seen("(4, 8) int64", "(4, 10) int64", "(4, 12) int64"),
        seen("(4, 8) int64", "(5, 9) int64"),
        seen("(4, 9) int64", "(4, 8) int64"),
        seen("(4, 8) int64", "(4, 9) int64", "(5, 9) int64"),
        seen("(4, 8) int64", "(4, 9) float32"),
        seen("(4, 8) int64", "(4, 8, 1) int64"),
        seen("(4, 8) int64", "(4, 9) int64, (1,) int64"),
        seen("(4, 8) int64", "(4, 9) int64", steps=2),
        seen("(4, 8) int64"),
        seen("", ""),
    ],
    ids=[
        "any length", "by two", "two dimensions", "shrinks", "another dimension", "dtype", "rank",
        "more inputs", "come back", "one", "no inputs",
    ],
)  # fmt: skip
def test_other_changes_are_no_growth(shapes: Shapes) -> None:
    assert growth(profile(shapes=shapes)) is None


def two(usual: str, other: str, steps: tuple[int, int] = (2, 1)) -> Shapes:
    return Shapes(
        False, (ShapeSignature(steps[0], tensors(usual)), ShapeSignature(steps[1], tensors(other)))
    )


@pytest.mark.parametrize("turned", [False, True])
def test_the_last_batch_of_an_epoch_is_left_out_not_padded(turned: bool) -> None:
    usual, last = (
        "(32, 8) float32, (5,) int64, (32,) int64",
        "(16, 8) float32, (5,) int64, (16,) int64",
    )
    shapes = two(last, usual, (1, 2)) if turned else two(usual, last)
    assert shorter_batch(profile(shapes=shapes)) == (32, 16)
    rule = find_rule("LS010")
    assert rule is not None
    (finding,) = rule.check(profile(shapes=shapes))
    assert finding.title == (
        "One of 3 inspected steps had smaller inputs: 16 instead of 32 in the first dimension"
    )
    assert "drop_last=True" in finding.advice


@pytest.mark.parametrize(
    "shapes",
    [
        two("(32, 8) float32", "(32, 5) float32"),
        two("(16, 8) float32", "(32, 8) float32"),
        two("(32, 8) float32", "(16, 8) float32", (2, 2)),
        two("(32, 8) float32, (32,) int64", "(16, 8) float32, (31,) int64"),
        two("() float32", "(3,) float32"),
        two("(32, 8) float32", "(16, 8) int64"),
        seen("(32, 8) float32", "(16, 8) float32"),
        seen("(32, 8) float32"),
    ],
    ids=["longer", "larger", "as often", "two sizes", "rank", "dtype", "each once", "one"],
)
def test_other_changes_are_no_last_batch(shapes: Shapes) -> None:
    assert shorter_batch(profile(shapes=shapes)) is None


def test_shapes_that_come_back_do_not_differ_in_every_step() -> None:
    back = Shapes(
        False, (ShapeSignature(2, tensors("(8,) int64")), ShapeSignature(1, tensors("(9,) int64")))
    )
    assert not every_step_differs(profile(shapes=back))
    assert every_step_differs(profile(shapes=seen("(8,) int64", "(19,) int64")))


@pytest.mark.parametrize(
    ("shapes", "title", "advice"),
    [
        (CACHE, "An input grows by one from step to step: (1, 8, 61, 32)", "Use a static cache"),
        (
            seen("(4, 8) int64", "(4, 3) int64"),
            "different in each of the 2 inspected steps",
            "Pad the inputs",
        ),
        (seen("(4, 8) int64", "(4, 3) int64", steps=3), "2 different ones in 6", "one graph for"),
    ],
    ids=["growth", "new each step", "come back"],
)
def test_the_finding_says_how_the_shapes_change(shapes: Shapes, title: str, advice: str) -> None:
    rule = find_rule("LS010")
    assert rule is not None
    (finding,) = rule.check(profile(shapes=shapes))
    assert title in finding.title
    assert advice in finding.advice


def test_the_kind_to_capture_waits_for_its_inputs() -> None:
    rule, base = find_rule("LS012"), profile(shapes=CACHE)
    assert rule is not None
    assert base.step is not None
    kinds = (StepKind("prefill", None, 10.0), StepKind("decode", None, 90.0))
    changed = profile(shapes=CACHE, step=base.step.__class__(
        "forward", ("forward",), ("M",), "forward", kinds=kinds
    ))  # fmt: skip
    (finding,) = rule.check(changed)
    assert finding.advice == (
        "Capture decode in a graph of its own and leave the rest eager. Its inputs have to keep "
        "one size first (LS010)."
    )
