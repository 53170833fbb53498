from __future__ import annotations

import json

import torch

from launchscope.runner.child.capture.relative_error import of_outputs, squared_norms


def test_a_difference_from_zeros_is_large_and_still_valid_json() -> None:
    error = of_outputs([(torch.ones(3), torch.zeros(3))])
    assert error is not None
    assert error > 1000
    json.dumps(error, allow_nan=False)


def test_equal_zeros_have_no_error() -> None:
    assert of_outputs([(torch.zeros(3), torch.zeros(3))]) == 0.0


def test_nan_against_a_number_is_a_large_error_and_the_same_infinity_is_none() -> None:
    nan, inf = float("nan"), float("inf")
    alike = torch.tensor([nan, inf, -inf, 1.0])
    assert of_outputs([(alike, alike.clone())]) == 0.0
    for wrong in (nan, inf):
        error = of_outputs([(torch.tensor([wrong, 1.0]), torch.tensor([0.0, 1.0]))])
        assert error is not None
        assert error > 1000
    error = of_outputs([(torch.tensor([inf]), torch.tensor([-inf]))])
    assert error is not None
    assert error > 1000


def test_what_is_equal_counts_in_the_size_that_a_difference_elsewhere_is_related_to() -> None:
    equal = torch.full((4,), 3.0), torch.full((4,), 3.0)
    differs = torch.tensor([1.0], dtype=torch.float64), torch.tensor([2.0], dtype=torch.float64)
    assert of_outputs([equal, differs]) == (1.0 / (4 * 9.0 + 4.0)) ** 0.5


def test_rounding_does_not_hide_infinity() -> None:
    inf = float("inf")
    for one, other in ((0.0, inf), (inf, 0.0), (inf, -inf)):
        pair = torch.tensor([one, 1.0]), torch.tensor([other, 1.0])
        assert squared_norms([pair], rounded=True)[0] == inf
