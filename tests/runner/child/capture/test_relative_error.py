from __future__ import annotations

import json

import torch

from launchscope.runner.child.capture.relative_error import RelativeError, of_outputs


def test_what_differs_from_nothing_is_far_and_still_a_number_of_json() -> None:
    far = of_outputs([(torch.ones(3), torch.zeros(3))])
    assert far is not None
    assert far > 1000
    json.dumps(far, allow_nan=False)


def test_equal_outputs_of_nothing_are_equal() -> None:
    assert of_outputs([(torch.zeros(3), torch.zeros(3))]) == 0.0


def test_a_number_against_none_is_far_and_the_same_infinity_is_not() -> None:
    nan, inf = float("nan"), float("inf")
    alike = torch.tensor([nan, inf, -inf, 1.0])
    assert of_outputs([(alike, alike.clone())]) == 0.0
    for wrong in (nan, inf):
        far = of_outputs([(torch.tensor([wrong, 1.0]), torch.tensor([0.0, 1.0]))])
        assert far is not None
        assert far > 1000
    apart = of_outputs([(torch.tensor([inf]), torch.tensor([-inf]))])
    assert apart is not None
    assert apart > 1000


def test_rounding_hides_no_infinity() -> None:
    inf = float("inf")
    for one, other in ((0.0, inf), (inf, 0.0), (inf, -inf)):
        apart = RelativeError(rounded=True)
        apart.add(torch.tensor([one, 1.0]), torch.tensor([other, 1.0]))
        assert apart.relative_to(1.0) > 1000
