from __future__ import annotations

import json

import torch

from launchscope.runner.child.capture.relative_error import (
    gap,
    of_outputs,
    of_update,
)
from launchscope.runner.child.capture.state import DeviceState


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
        assert gap(*pair, rounded=True)[0] == inf


def adam_step(scale_of_gradients: torch.Tensor) -> tuple[torch.nn.Linear, DeviceState, DeviceState]:
    """A model after a few steps of Adam, and its states around the last one."""
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


def test_an_update_that_adam_makes_of_rounding_may_go_up_or_down() -> None:
    torch.manual_seed(0)
    scale = torch.ones(100, 100)
    scale[:5] = 1e-9
    model, before, after = adam_step(scale)
    with torch.no_grad():
        model.weight[:5] += 0.2
    difference = of_update(before.saved, after.saved)
    assert difference is not None
    assert 0 < difference < 1e-6
    with torch.no_grad():
        model.weight[50, 50] += 0.2
    difference = of_update(before.saved, after.saved)
    assert difference is not None
    assert difference > 1e-3


def test_a_parameter_with_small_gradients_counts_as_much_as_others() -> None:
    torch.manual_seed(0)
    model, before, after = adam_step(torch.full((100, 100), 1e-5))
    with torch.no_grad():
        model.weight[:50] += 0.01
    difference = of_update(before.saved, after.saved)
    assert difference is not None
    assert difference > 0.05


def test_a_lost_update_of_nan_or_infinity_is_not_hidden_by_small_gradients() -> None:
    torch.manual_seed(0)
    scale = torch.ones(100, 100)
    scale[:5] = 0.0
    model, before, after = adam_step(scale)
    for wrong in (float("inf"), float("nan")):
        with torch.no_grad():
            model.weight[0, 0] = wrong
        difference = of_update(before.saved, after.saved)
        assert difference is not None
        assert difference > 1000
