"""Steps that only call their model more or less often are not steps whose shapes change."""

from __future__ import annotations

import pytest

from launchscope.model import Shapes
from launchscope.rules import find_rule
from launchscope.rules.shape_change import calls_seen
from launchscope.rules.verdict.obstacles import obstacles
from tests.rules.cases import shapes
from tests.rules.profiles import profile


def observed(count: int) -> str:
    return ", ".join(["() float32", *["(4,) float32"] * count])


EPISODES = shapes(f"{observed(1)}, (7,) float32", f"{observed(1)}, (12,) float32", forwards=(7, 12))


def codes(of: Shapes) -> list[str]:
    found = []
    for code in ("LS010", "LS011"):
        rule = find_rule(code)
        assert rule is not None
        found += [finding.code for finding in rule.check(profile(shapes=of))]
    return found


@pytest.mark.parametrize(
    ("of", "wanted"),
    [
        (EPISODES, ["LS011"]),
        (shapes(observed(5), observed(9), forwards=(5, 9)), ["LS011"]),
        (shapes("(4, 97) float32", "(4, 101) float32", forwards=(2, 3)), ["LS011"]),
        (shapes("(4, 7) float32", "(4, 12) float32"), ["LS010"]),
        (shapes("(4, 7) float32", "(4, 12) float32", forwards=(1, 1)), ["LS010"]),
        (shapes("(7,)", "(9,)", "(11,)", forwards=(7, 9, 9)), ["LS010", "LS011"]),
    ],
    ids=["stack", "inputs", "sizes", "no count", "same count", "both"],
)
def test_more_calls_of_the_model_are_control_flow_and_other_shapes_of_as_many_a_change_of_shapes(
    of: Shapes, wanted: list[str]
) -> None:
    assert codes(of) == wanted


def test_the_advice_for_more_or_fewer_calls_is_to_fix_their_number_or_capture_the_forward() -> None:
    rule, of = find_rule("LS011"), profile(shapes=EPISODES)
    assert rule is not None
    (finding,) = rule.check(of)
    assert "call the model 7 and 12 times" in finding.title
    assert "same number of calls" in finding.advice
    assert "make_graphed_callables" in finding.advice
    assert "torch.where" not in finding.advice
    assert [(o.kind, o.code) for o in obstacles(of)] == [("calls", "LS011")]


def test_calls_are_unknown_where_a_recording_did_not_count_them() -> None:
    assert calls_seen(profile(shapes=shapes("(1,)", "(2,)", forwards=(None, 3)))) == []
    assert calls_seen(profile(shapes=EPISODES)) == [7, 12]
