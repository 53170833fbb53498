"""How far apart two versions of a state are said to be."""

from __future__ import annotations

import json
from math import inf, nan

import pytest
import torch

from launchscope.runner.child.capture.relative_error import gap, of_outputs, of_update
from launchscope.runner.child.capture.state import DeviceState


@pytest.mark.parametrize(
    ("one", "other"),
    [([1.0], [0.0]), ([nan, 1.0], [0.0, 1.0]), ([inf, 1.0], [0.0, 1.0]), ([inf], [-inf])],
)
def test_a_difference_from_nothing_or_to_no_number_is_large_and_still_valid_json(
    one: list[float], other: list[float]
) -> None:
    error = of_outputs([(torch.tensor(one), torch.tensor(other))])
    assert error is not None
    assert error > 1000
    json.dumps(error, allow_nan=False)


def test_equal_zeros_and_the_same_infinity_have_no_error() -> None:
    alike = torch.tensor([nan, inf, -inf, 0.0])
    assert of_outputs([(alike, alike.clone())]) == 0.0


def test_rounding_hides_the_last_bit_and_nothing_else() -> None:
    eps = torch.finfo(torch.float32).eps
    one, other = torch.tensor([1.0, 1.0, inf]), torch.tensor([1.0 + eps, 1.0 + 200 * eps, 0.0])
    assert (gap(one, other, rounded=True) > 0).tolist() == [False, True, True]
    assert (gap(one, other) > 0).all()


@pytest.mark.parametrize("wrong", [inf, nan])
def test_a_lost_update_of_nan_or_infinity_is_large(wrong: float) -> None:
    model = torch.nn.Linear(100, 100, bias=False)
    before, after = (DeviceState(torch, [model], [], {}, "cpu") for _ in range(2))
    before.save()
    with torch.no_grad():
        model.weight += 0.1
        after.save()
        model.weight[0] = wrong
    difference = of_update(before.saved, after.saved)
    assert difference is not None
    assert difference > 1000
