"""A number that nobody has read is one and the same object; reading it in any way is noticed."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
import torch

from launchscope.integrations.unread import Unread


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (lambda n: n % 4, 3),
        (lambda n: 10 - n, 3),
        (lambda n: n == 7, True),
        (lambda n: n < 8.5, True),
        (lambda n: -n, -7),
        (bool, True),
        (str, "7"),
        (lambda n: f"{n:03}", "007"),
        (lambda n: list(range(10))[n], 7),
        (lambda n: {7: "seven"}[n], "seven"),
        (lambda n: n.bit_length(), 3),
        (lambda n: n.real, 7),
        (lambda n: torch.zeros(n).numel(), 7),
        (operator.index, 7),
        (lambda n: n + n, 14),
    ],
)
def test_it_gives_what_the_integer_gives_and_notes_that(
    read: Callable[[object], object], expected: object
) -> None:
    number = Unread()
    held = number.holding(7)
    assert held is number
    assert not number.was_read
    assert read(held) == expected
    assert number.was_read
    assert type(number.holding(8)) is int
