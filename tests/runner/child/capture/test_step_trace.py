"""What a step gets from outside. Tensors of doubles take the place of tensors on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from launchscope.runner.child.capture.causes import causes_between
from launchscope.runner.child.capture.step_trace import StepRecorder, StepTrace
from launchscope.runner.child.hooks.events import NO_OBSERVER
from launchscope.runner.child.hooks.hooks import Hooks

WEIGHT = torch.ones(4, dtype=torch.float64)


def recorded(step: Callable[[], Any], expected: StepTrace | None = None, **more: Any) -> StepTrace:
    recorder = StepRecorder(
        torch,
        Hooks(torch, NO_OBSERVER),
        lambda tensor: bool(tensor.dtype == torch.float64),
        expected,
        **more,
    )
    mode = recorder.mode()
    mode.__enter__()
    held = step()
    mode.__exit__(None, None, None)
    recorder.trace.settle()
    del held
    return recorder.trace


def causes(captured: StepTrace, eager: StepTrace) -> list[str]:
    return [cause.kind for cause in causes_between(captured, eager, {}, {})]


def test_a_batch_in_another_tensor_is_an_input_and_a_weight_is_not() -> None:
    batches = [torch.full((4,), value, dtype=torch.float64) for value in (1.0, 2.0)]
    captured = recorded(lambda: batches[0] * WEIGHT)
    eager = recorded(lambda: batches[1] * WEIGHT, captured, before=captured)
    assert [view.value is not None for view in eager.views] == [True, False]
    assert causes(captured, eager) == []


def test_a_batch_in_another_part_of_one_tensor_is_an_input_too() -> None:
    data = torch.arange(8, dtype=torch.float64)
    parts = data[:4], data[4:]
    captured = recorded(lambda: parts[0] * WEIGHT)
    eager = recorded(lambda: parts[1] * WEIGHT, captured, before=captured)
    assert eager.views[0].value.tolist() == [4.0, 5.0, 6.0, 7.0]


def test_a_number_that_the_device_hands_to_the_host_is_no_python_value() -> None:
    batches = [torch.full((4,), value, dtype=torch.float64) for value in (1.0, 2.0)]

    def step() -> Any:  # as attention does with the seed of its dropout
        return WEIGHT * batches.pop().sum(dtype=torch.float32)

    captured = recorded(step)
    assert causes(captured, recorded(step, captured, before=captured)) == []


def test_a_slice_taken_inside_the_step_is_a_frozen_value() -> None:
    data = torch.arange(8, dtype=torch.float64)
    captured = recorded(lambda: data[0:4] * WEIGHT)
    eager = recorded(lambda: data[4:8] * WEIGHT, captured, before=captured)
    assert causes(captured, eager)[0] == "scalar"


def test_data_that_the_step_makes_on_the_host_and_uses_is_frozen() -> None:
    def step() -> Any:
        return WEIGHT * torch.rand(4).to(torch.float64)

    captured = recorded(step)
    assert causes(captured, recorded(step, captured, before=captured)) == ["cross_step_state"]


def test_host_data_that_is_the_same_in_each_step_is_not_frozen() -> None:
    def step() -> Any:
        return WEIGHT * torch.arange(4, dtype=torch.float32).add(0.5).to(torch.float64)

    captured = recorded(step)
    assert causes(captured, recorded(step, captured, before=captured)) == []


def test_a_batch_fetched_for_the_next_step_is_an_input_of_that_step() -> None:
    batch = [torch.rand(4).to(torch.float64)]

    def step() -> Any:
        loss = batch[0] * WEIGHT
        batch[0] = torch.rand(4).to(torch.float64)
        return loss

    captured = recorded(step)
    first = recorded(step, captured, before=captured)
    second = recorded(step, captured, before=first)
    assert causes(captured, first) == causes(captured, second) == []
    assert second.views[0].value is not None


def test_a_number_in_a_tensor_on_the_host_is_a_frozen_value() -> None:
    captured = recorded(lambda: WEIGHT * torch.tensor(0.5))
    eager = recorded(lambda: WEIGHT * torch.tensor(0.25), captured, before=captured)
    (cause,) = causes_between(captured, eager, {}, {})
    assert (cause.kind, cause.before, cause.after) == ("scalar", 0.5, 0.25)


def test_writes_to_memory_from_outside_are_recorded_with_their_type() -> None:
    captured = recorded(lambda: WEIGHT.mul_(1.0))
    assert list(captured.written.values()) == [torch.float64]
    assert not recorded(lambda: (WEIGHT * 2).mul_(1.0)).written
