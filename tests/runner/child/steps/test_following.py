"""A known pattern is followed event by event (histories are written as in `histories`)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runner.histories import PLAIN, followed, trained


@pytest.mark.parametrize(
    ("history", "step"),
    [
        (PLAIN, PLAIN),
        ("F.net B " * 8 + "O.adam", "F.net B " * 8 + "O.adam"),
        ("F.D B O.d F.D B O.g", "F.D B O.d F.D B O.g"),
        ("F.net F.mse~ B O.adam", "F.net F.mse~ B O.adam"),
        ("f.teacher F.net B O.adam", "f.teacher F.net B O.adam"),
        ("O.lbfgs", "O.lbfgs"),
        ("B O.adam", "B O.adam"),
    ],
)
def test_every_period_is_followed_as_one_step(history: str, step: str) -> None:
    pattern = trained(f"{history} " * 5)
    assert followed(pattern, f"{history} " * 4) == [step] * 4


def test_a_step_begins_anew_after_forwards_without_a_backward() -> None:
    pattern = trained(f"{PLAIN} " * 3)
    assert followed(pattern, f"{PLAIN} F.net F.net {PLAIN}") == [PLAIN, PLAIN]


def test_a_hand_written_step_ends_with_the_next_opening() -> None:
    pattern = trained("F.net B " * 4, optimizer_expected=False)
    assert followed(pattern, "F.net B F.net B F.net") == ["F.net B"] * 2
    assert followed(pattern, "F.net B f.eval F.net") == ["F.net B f.eval"]


@given(
    st.sampled_from(
        [
            PLAIN,
            "F.net B F.net B O.adam",
            "F.D B O.d F.D B O.g",
            "F.D B F.G F.D B O.d F.D B O.g",
            "F.net F.net F.mse~ B O.adam",
        ]
    ),
    st.lists(
        st.sampled_from(["", "f.net", "f.D f.G", "f.eval"]),
        min_size=6,
        max_size=12,
    ),
)
def test_no_step_is_lost_whatever_runs_without_grad_between_them(
    step: str, between: list[str]
) -> None:
    pattern = trained(f"{step} " * 4)
    history = " ".join(f"{step} {noise}" for noise in between)
    assert followed(pattern, history) == [step] * len(between)
