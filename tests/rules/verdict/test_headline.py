"""What findings and headline say of cases at the edges: true there, and in agreement."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from launchscope.model import Profile
from tests.rules.cases import shapes, verdict
from tests.rules.profiles import blocked, item_blocker, rehearsal


def headline(of: Profile) -> str:
    return verdict(of).headline


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
    assert headline(blocked()).endswith("(2.67x).")
    both = replace(blocked(), blockers=(item_blocker(),), shapes=shapes(*inputs))
    assert headline(both).endswith("(2.67x), before the cost of padding.")


def test_a_rehearsal_does_not_clear_what_is_switched_off_in_it() -> None:
    whole = rehearsal()
    without = replace(whole, facts=replace(whole.facts, amp_left_out=True))
    assert "Autocast was not checked." in headline(without)
    assert "Autocast" not in headline(whole)
