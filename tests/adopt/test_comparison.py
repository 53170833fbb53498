"""What two versions of a script did, compared value by value."""

from __future__ import annotations

import pytest

from launchscope.adopt.comparison import compare, compare_lines, first_inequality
from launchscope.adopt.record import Iteration, Kind, Noted


def number(value: float, kind: Kind = "read", name: str = "item") -> Noted:
    return Noted(kind, name, "float", hash(value), (value,))


def text(value: str, kind: Kind = "end", name: str = "words") -> Noted:
    return Noted(kind, name, value, hash(value))


def run(*iterations: tuple[Noted, ...]) -> list[Iteration]:
    return list(iterations)


def test_equal_runs_agree_to_the_last_bit() -> None:
    one = run((number(1.0, "state", "weight"),), (number(0.5), text("a")), (text("end"),))
    found = compare(one, one, one)
    assert (found.difference, found.exact) == (None, True)
    assert (found.iterations, found.values, found.reads) == (1, 4, 1)


@pytest.mark.parametrize("value", [number(0.5 + 1e-9), text("float", "read", "item")])
def test_what_both_originals_have_alike_must_be_alike(value: Noted) -> None:
    original = run((), (number(0.5),))
    found = compare(original, original, run((), (value,)))
    assert found.difference is not None
    assert (found.difference.iteration, found.difference.kind) == (1, "read")


def test_numbers_that_do_not_repeat_may_be_as_far_away_as_two_originals_are() -> None:
    first, second = run((number(1.000),)), run((number(1.001),))
    assert compare(first, second, run((number(1.003),))).difference is None
    assert compare(first, second, run((number(1.010),))).difference is not None
    assert not compare(first, second, run((number(1.003),))).exact


def test_a_text_that_does_not_repeat_is_left_out_and_others_are_not() -> None:
    first, second = (run((text(made), text("b", name="fixed"))) for made in ("10:01", "10:02"))
    assert compare(first, second, run((text("10:03"), text("b", name="fixed")))).difference is None
    found = compare(first, second, run((text("10:03"), text("c", name="fixed"))))
    assert found.difference is not None
    assert found.difference.name == "fixed"


@pytest.mark.parametrize("patched", [(), (number(1.0), number(2.0))])
def test_a_missing_and_an_added_read_are_differences(patched: tuple[Noted, ...]) -> None:
    original = run((number(1.0),))
    assert compare(original, original, run(patched)).difference is not None


def test_a_missing_iteration_is_a_difference() -> None:
    original = run((number(1.0),), (number(2.0),))
    assert compare(original, original, original[:1]).difference is not None


def test_names_that_only_the_changed_script_has_are_its_own() -> None:
    original = run((text("a"),))
    assert compare(original, original, run((text("a"), text("f", name="step")))).difference is None


def test_values_read_in_another_order_are_a_difference() -> None:
    original = run((number(1.0), number(2.0)))
    assert compare(original, original, run((number(2.0), number(1.0)))).difference is not None


def test_originals_that_begin_unlike_are_not_compared() -> None:
    first, second = (run((number(made, "state", "weight"),)) for made in (1.0, 2.0))
    assert first_inequality(first, second) == "state"
    batches = [run((), (number(made, "batch", "x"),)) for made in (1.0, 2.0)]
    assert first_inequality(*batches) == "batch"
    assert first_inequality(first, first) is None


def test_lines_that_the_originals_print_alike_are_compared() -> None:
    assert compare_lines("a\n1 s\n", "a\n2 s\n", "a\n3 s\n") == 1
    assert compare_lines("a\n", "a\nb\n", "a\n") is None
    found = compare_lines("a\nb\n", "a\nb\n", "a\n")
    assert found is not None
    assert not isinstance(found, int)
    assert (found.original, found.patched) == ("b", "")
