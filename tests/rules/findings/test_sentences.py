"""What findings and headline say of cases at the edges: true there, and in agreement."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from launchscope.model import Cause, Correctness, Profile, Shapes, ShapeSignature, SourceLine
from launchscope.rules import advise
from tests.rules.profiles import (
    SUBTRACTED,
    blocked,
    item_blocker,
    profile,
    rehearsal,
    share,
)
from tests.shapes import tensors


def said(of: Profile, code: str) -> str:
    """Title and advice of the findings of one rule."""
    found = [f for f in advise(of).findings if f.code == code]
    return " | ".join(f"{f.title}. {f.advice}" for f in found)


def headline(of: Profile) -> str:
    verdict = advise(of).verdict
    assert verdict is not None
    return verdict.headline


def gains(removable: float, low: float, high: float, **more: Any) -> dict[str, Any]:
    metrics = {"removable_pct": share(removable, low, high), **more.pop("metrics", {})}
    return {"metrics": metrics, **more}


def test_a_loss_is_never_a_negative_gain() -> None:
    what_if = replace(profile().replay, status="what_if")
    assert "makes the iteration 3.0 % longer, which is within the spread" in said(
        profile(**gains(-3, -9, 4)), "LS001"
    )
    assert said(profile(**gains(-8, -9, -7, replay=what_if)), "LS001").startswith(
        "A replay makes the iteration 8.0 % longer once the blocking lines are fixed ("
    )
    assert "removes nothing from the iteration" in said(profile(**gains(-0.03, -1, 1)), "LS001")


@pytest.mark.parametrize(("share", "shown"), [(14.8, "14.8 %"), (15.3, "15.3 %"), (23.3, "23 %")])
def test_a_launch_share_next_to_the_15_percent_rule_shows_the_difference(
    share: float, shown: str
) -> None:
    of = profile(metrics={"launch_share_pct": share})
    assert said(of, "LS002").startswith(f"Launch calls take {shown} of the step")


def test_the_15_percent_rule_is_not_compared_with_a_gain_that_is_not_known() -> None:
    undecided = said(profile(**gains(10, -20, 40)), "LS002")
    assert "the timings do not show whether a replay pays (LS005)" in undecided
    assert "does not reach" not in undecided


def test_more_steps_are_asked_for_than_were_timed() -> None:
    of = profile(**gains(20, -3, 43, facts={"timing_steps": 120}))
    assert "--timing" not in said(of, "LS005")
    subtracted = replace(of, metrics=of.metrics | {"replayed_iteration_ms": SUBTRACTED})
    assert "--timing 480 --replay 480" in said(subtracted, "LS005")


@pytest.mark.parametrize(
    "inputs",
    [
        ("(8, 256) int64", "(8, 128) int64"),
        ("(8, 61, 4) int64", "(8, 62, 4) int64", "(8, 63, 4) int64"),
    ],
    ids=["padding", "a cache that grows"],
)
def test_a_gain_that_padding_will_lower_says_so_also_beside_other_fixes(
    inputs: tuple[str, ...],
) -> None:
    shapes = Shapes(False, tuple(ShapeSignature(1, tensors(text)) for text in inputs))
    assert headline(blocked()).endswith("(2.67x).")
    both = replace(blocked(), blockers=(item_blocker(),), shapes=shapes)
    assert headline(both).endswith("(2.67x), before the cost of padding.")


def test_causes_that_differ_in_a_later_value_alone_are_one() -> None:
    first, later = (
        Cause("scalar", SourceLine("train.py", 64), 7, value, op="aten.select") for value in (0, 1)
    )
    other = replace(first, where=SourceLine("train.py", 65))
    assert Correctness(causes=(first, later, other)).distinct_causes == (first, other)


def test_a_rehearsal_does_not_clear_what_is_switched_off_in_it() -> None:
    whole = rehearsal()
    without = replace(whole, facts=replace(whole.facts, amp_left_out=True))
    assert "Autocast was not checked." in headline(without)
    assert "Autocast" not in headline(whole)
