"""What a step gets from outside. Tensors of doubles take the place of tensors on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from launchscope.runner.child.capture.causes import causes_between
from launchscope.runner.child.capture.step_trace import StepRecorder, StepTrace
from launchscope.runner.child.events.events import NO_OBSERVER
from launchscope.runner.child.events.hooks import Hooks

WEIGHT = torch.ones(4, dtype=torch.float64)
Step = Callable[[], Any]


def recorded(step: Step, expected: StepTrace | None = None, before: Any = None) -> StepTrace:
    hooks = Hooks(torch, NO_OBSERVER)
    recorder = StepRecorder(torch, hooks, lambda t: t.dtype == torch.float64, expected, before)
    with recorder.mode():
        held = step()
    recorder.trace.settle()
    del held
    return recorder.trace


def two(step: Step, later: Step | None = None) -> tuple[StepTrace, StepTrace]:
    """A captured step and the one after it."""
    captured = recorded(step)
    return captured, recorded(later or step, captured, captured)


def causes(captured: StepTrace, eager: StepTrace) -> list[str]:
    return [cause.kind for cause in causes_between(captured, eager, {}, {})]


def doubles(value: float) -> torch.Tensor:
    return torch.full((4,), value, dtype=torch.float64)


def test_a_batch_in_another_tensor_is_an_input_and_a_weight_is_not() -> None:
    batches = [doubles(2.0), doubles(1.0)]
    captured, eager = two(lambda: batches.pop() * WEIGHT)
    assert [view.value is not None for view in eager.views] == [True, False]
    assert causes(captured, eager) == []


def test_a_batch_fetched_for_the_next_step_is_an_input_of_that_step() -> None:
    batch = [torch.rand(4).to(torch.float64)]

    def step() -> Any:
        loss = batch[0] * WEIGHT
        batch[0] = torch.rand(4).to(torch.float64)
        return loss

    captured, first = two(step)
    second = recorded(step, captured, first)
    assert causes(captured, first) == causes(captured, second) == []
    assert second.views[0].value is not None


def seeded() -> Any:
    """As attention does with the seed of its dropout, which the device hands to the host."""
    return WEIGHT * torch.rand(4, dtype=torch.float64).sum(dtype=torch.float32)


@pytest.mark.parametrize(
    ("step", "found"),
    [
        (seeded, []),
        (lambda: WEIGHT * torch.rand(4).to(torch.float64), ["cross_step_state"]),
        (lambda: WEIGHT * torch.arange(4).float().add(0.5).to(torch.float64), []),
    ],
    ids=["a number of the device", "host data", "host data that is the same in each step"],
)
def test_what_the_host_makes_in_the_step_is_frozen(step: Step, found: list[str]) -> None:
    assert causes(*two(step)) == found


def test_a_number_in_a_tensor_on_the_host_is_a_frozen_value() -> None:
    steps = two(lambda: WEIGHT * torch.tensor(0.5), lambda: WEIGHT * torch.tensor(0.25))
    (cause,) = causes_between(*steps, {}, {})
    assert (cause.kind, cause.before, cause.after) == ("scalar", 0.5, 0.25)


def test_writes_to_memory_from_outside_are_recorded_with_their_type() -> None:
    captured = recorded(lambda: WEIGHT.mul_(1.0))
    assert list(captured.written.values()) == [torch.float64]
    assert not recorded(lambda: (WEIGHT * 2).mul_(1.0)).written
