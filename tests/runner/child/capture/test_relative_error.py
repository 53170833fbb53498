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


def adam_step(scale_of_gradients: torch.Tensor) -> tuple[torch.nn.Linear, DeviceState, DeviceState]:
    """A model after a few steps of Adam, and its states around the last one."""
    torch.manual_seed(0)
    model = torch.nn.Linear(100, 100, bias=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    states = [DeviceState(torch, [model], [optimizer], {}, "cpu") for _ in range(2)]
    for step in range(5):
        model.weight.grad = torch.randn(100, 100) * scale_of_gradients
        if step == 4:
            states[0].save()
        optimizer.step()
    states[1].save()
    return model, states[0], states[1]


def moved(step: tuple[torch.nn.Linear, DeviceState, DeviceState], rows: slice, by: float) -> float:
    """The difference once these rows of the weight were moved by so much."""
    model, before, after = step
    with torch.no_grad():
        model.weight[rows] += by
    difference = of_update(before.saved, after.saved)
    assert difference is not None
    return difference


@pytest.mark.parametrize("wrong", [inf, nan])
def test_a_lost_update_of_nan_or_infinity_is_large(wrong: float) -> None:
    assert moved(adam_step(torch.ones(100, 100)), slice(1), wrong) > 1000
