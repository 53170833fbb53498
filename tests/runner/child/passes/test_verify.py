"""The check of a replay against eager, with a function on the CPU in place of the graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from launchscope.model import (
    InspectResult,
    LastBatch,
    Reason,
    SourceLine,
    TensorShape,
    VerifyResult,
)
from launchscope.runner.child.capture.causes import causes_between, hyperparameters
from launchscope.runner.child.capture.step_trace import Call, StepTrace
from launchscope.runner.child.capture.stubs import Stubs
from launchscope.runner.child.passes import Skip
from launchscope.runner.child.passes.verify import VerifyPass
from launchscope.runner.child.plain_values import shape_of
from tests.runner.steps import context_of, verified

BATCHES = 6


class Loop:
    """A small training loop with batches that live where the test can reach them."""

    def __init__(self, make: Callable[[Any], torch.optim.Optimizer]):
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
        self.optimizer = make(self.model.parameters())
        self.inputs = [torch.randn(16, 8) for _ in range(BATCHES)]
        self.scale: float = 1.0

    def step(self, index: int, scale: float | None = None) -> Any:
        self.optimizer.zero_grad()
        out = self.model(self.inputs[index]) * (self.scale if scale is None else scale)
        loss = out.pow(2).mean()
        loss.backward()
        self.optimizer.step()
        return loss


class Inference:
    """Batches through a model; `results[1]` is where a replay of the captured one writes."""

    def __init__(self, *layers: Any):
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(*layers)
        self.inputs = [torch.randn(16, 8) for _ in range(BATCHES)]
        self.results: list[Any] = []

    @torch.no_grad()
    def step(self, index: int) -> Any:
        self.results.append(self.model(self.inputs[index]))
        return self.results[-1]

    @torch.no_grad()
    def replay(self, scale: float = 1.0) -> None:
        self.results[1].copy_(self.model(self.inputs[0]) * scale)

    def checked(self, folder: Path, scale: float) -> VerifyResult:
        self.results.clear()
        context = context_of(folder, self.model)
        context.boundary = replace(context.boundary, scope="forward")
        return verified(context, self.step, lambda: self.replay(scale))


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def checked(loop: Loop, folder: Path, **more: Any) -> VerifyResult:
    context = context_of(folder, loop.model, loop.optimizer)
    return verified(context, loop.step, lambda: loop.step(0, 1.0), **more)


def test_a_step_that_a_replay_repeats_exactly_is_verified(tmp_path: Path) -> None:
    loop = Loop(sgd)
    result = checked(loop, tmp_path)
    assert (result.status, result.causes) == ("verified", ())
    assert result.update_diff == (0.0,) * 4


def test_a_wrong_update_of_a_group_that_hardly_moves_is_found(tmp_path: Path) -> None:
    def two_groups(parameters: Any) -> torch.optim.Optimizer:
        weights, *rest = list(parameters)
        groups: list[dict[str, Any]] = [{"params": rest}, {"params": [weights], "lr": 1e-5}]
        return torch.optim.SGD(groups, lr=0.1)

    loop = Loop(two_groups)
    group = loop.optimizer.param_groups[1]

    def replay() -> None:
        group["lr"] *= 2.0
        loop.step(0, 1.0)
        group["lr"] /= 2.0

    result = verified(context_of(tmp_path, loop.model, loop.optimizer), loop.step, replay)
    assert (result.status, result.causes) == ("different", ())
    assert result.update_diff == pytest.approx((1.0,) * 4, rel=0.1)


@pytest.mark.parametrize(("ulps", "status"), [(1, "verified"), (200, "different")])
def test_a_difference_in_the_last_bit_is_no_wrong_update(
    tmp_path: Path, ulps: int, status: str
) -> None:
    def small_group(parameters: Any) -> torch.optim.Optimizer:
        weights, *rest = list(parameters)
        groups: list[dict[str, Any]] = [{"params": rest}, {"params": [weights], "lr": 1e-6}]
        return torch.optim.SGD(groups, lr=0.1)

    loop = Loop(small_group)
    weights = loop.optimizer.param_groups[1]["params"][0]

    def replay() -> None:
        loop.step(0, 1.0)
        with torch.no_grad():
            weights[0] += ulps * torch.finfo(torch.float32).eps / 2 * weights[0].abs()

    result = verified(context_of(tmp_path, loop.model, loop.optimizer), loop.step, replay)
    assert (result.status, result.causes) == (status, ())


@pytest.mark.parametrize("fault", [0.0, 0.1])
def test_a_rare_difference_between_replays_is_no_fault_and_one_in_all_of_them_is(
    tmp_path: Path, fault: float
) -> None:
    """As where an activation beside the kink of a ReLU falls on either side."""
    loop = Loop(sgd)
    weight: Any = next(loop.model.parameters())
    replays = 0

    def replay() -> None:
        nonlocal replays
        replays += 1
        loop.step(0, 1.0)
        with torch.no_grad():
            weight[0, 0] += fault + (0.05 if replays in (1, 2) else 0.0) + 1e-6 * (replays % 2)

    result = verified(context_of(tmp_path, loop.model, loop.optimizer), loop.step, replay)
    assert result.status == ("different" if fault else "verified")
    assert 0 < max(result.noise_floor) < 1e-4
    assert replays == (24 if fault else 8)


def test_replays_do_not_change_what_the_script_computes(tmp_path: Path) -> None:
    watched, alone = Loop(sgd), Loop(sgd)
    inputs = [batch.clone() for batch in watched.inputs]
    checked(watched, tmp_path)
    for index in (0, 0, 1, 2, 3, 4):
        alone.step(index)
    for mine, theirs in zip(watched.model.parameters(), alone.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert all(map(torch.equal, watched.inputs, inputs))


@pytest.mark.parametrize("family", ["SGD", "AdamW", "RMSprop"])
def test_a_learning_rate_that_a_scheduler_changes_is_named(tmp_path: Path, family: str) -> None:
    loop = Loop(lambda parameters: getattr(torch.optim, family)(parameters, lr=0.1))
    scheduler = torch.optim.lr_scheduler.ExponentialLR(loop.optimizer, 0.5)

    def frozen() -> None:
        now = [group["lr"] for group in loop.optimizer.param_groups]
        for group in loop.optimizer.param_groups:
            group["lr"] = 0.1
        loop.step(0)
        for group, lr in zip(loop.optimizer.param_groups, now, strict=True):
            group["lr"] = lr

    context = context_of(tmp_path, loop.model, loop.optimizer)
    result = verified(context, loop.step, frozen, between=lambda index: scheduler.step())
    assert result.status == "different"
    cause = result.causes[0]
    assert (cause.kind, cause.optimizer, cause.hyperparameter) == ("learning_rate", family, "lr")
    assert (cause.before, cause.after) == (0.1, 0.05)
    assert cause.where is not None
    assert cause.where.file.endswith("test_verify.py")
    assert max(result.update_diff) > 0.4


def test_a_python_value_that_changes_is_named_with_its_line(tmp_path: Path) -> None:
    loop = Loop(sgd)

    def colder(index: int) -> None:
        loop.scale *= 0.5

    result = checked(loop, tmp_path, between=colder)
    assert result.status == "different"
    first = result.causes[0]
    assert (first.kind, first.before, first.after) == ("scalar", 1.0, 0.5)
    assert first.op == "aten.mul"
    assert len(result.update_diff) == 4


def test_a_branch_is_named_by_its_first_different_op(tmp_path: Path) -> None:
    loop = Loop(sgd)

    def step(index: int) -> Any:
        if index == 2:
            loop.inputs[index].tanh_()
        return loop.step(index)

    context = context_of(tmp_path, loop.model, loop.optimizer)
    result = verified(context, step, lambda: loop.step(0))
    assert result.status == "different"
    assert [cause.kind for cause in result.causes] == ["branch"]
    assert result.causes[0].op == "aten.tanh_"
    assert result.causes[0].captured_op != "aten.tanh_"
    assert len(result.update_diff) == 3  # the step that went another way cannot be compared


@pytest.mark.parametrize("logs_at", [0, 2])
def test_what_a_step_computes_besides_is_no_branch(tmp_path: Path, logs_at: int) -> None:
    loop = Loop(sgd)

    def step(index: int) -> Any:
        loss = loop.step(index)
        if index == logs_at:
            assert loss.detach().sqrt().item() > 0.0
        return loss

    context = context_of(tmp_path, loop.model, loop.optimizer)
    result = verified(context, step, lambda: loop.step(0))
    # A step that cannot be compared op by op is left out.
    compared, status = (3, "verified") if logs_at else (0, "skipped")
    assert (result.status, result.causes) == (status, ())
    assert len(result.update_diff) == compared


@pytest.mark.parametrize("kept", ["averages", "a new tensor"])
def test_what_a_step_keeps_besides_is_a_branch(tmp_path: Path, kept: str) -> None:
    loop = Loop(sgd)
    average, history = torch.zeros(()), list[Any]()

    def step(index: int) -> Any:
        loss = loop.step(index)
        if index == 2 and kept == "averages":
            average.add_(loss.detach())
        elif index == 2:
            history.append(loss.detach().sqrt())
        return loss

    context = context_of(tmp_path, loop.model, loop.optimizer)
    result = verified(context, step, lambda: loop.step(0))
    assert [cause.kind for cause in result.causes] == ["branch"]


def test_a_tensor_that_a_step_passes_to_the_next_is_no_input(tmp_path: Path) -> None:
    loop = Loop(sgd)
    hidden = [torch.zeros(8)]
    captured: list[Any] = []

    def step(index: int) -> Any:
        read = hidden[0]
        captured[:] = captured[:2] or [read]
        hidden[0] = read * 0.5 + loop.inputs[index].mean(0)
        return loop.step(index)

    def frozen() -> None:
        (captured[0] * 0.5 + loop.inputs[0].mean(0)).sum()
        loop.step(0)

    context = context_of(tmp_path, loop.model, loop.optimizer)
    result = verified(context, step, frozen)
    assert result.status == "different"
    assert [cause.kind for cause in result.causes] == ["cross_step_state"]


@pytest.mark.parametrize("drops", [True, False])
def test_gradients_that_a_step_drops_unused_make_no_difference(tmp_path: Path, drops: bool) -> None:
    loop = Loop(sgd)
    of_steps: list[Any] = []

    def grads() -> list[Any]:
        return [parameter.grad for parameter in loop.model.parameters()]

    def put(gradients: list[Any]) -> None:
        for parameter, gradient in zip(loop.model.parameters(), gradients, strict=True):
            parameter.grad = gradient

    def run(index: int) -> Any:
        """A GAN's generator adds to the gradients of its discriminator, which drops them."""
        loop.model(loop.inputs[index]).mean().backward()
        if drops:
            loop.optimizer.zero_grad()
        loss = loop.model(loop.inputs[index]).pow(2).mean()
        loss.backward()
        loop.optimizer.step()
        return loss

    def step(index: int) -> Any:
        before = grads()
        loss = run(index)
        of_steps.append((before, [loss, *grads()]))
        return loss

    def frozen() -> None:
        now, (before, made) = grads(), of_steps[1]
        put(before)
        results = [run(0), *grads()]
        with torch.no_grad():
            for place, result in zip(made, results, strict=True):
                place.copy_(result)
        put(now)

    def between(index: int) -> None:
        if not drops:
            put([torch.zeros_like(gradient) for gradient in grads()])

    put([torch.zeros_like(parameter) for parameter in loop.model.parameters()])
    context = context_of(tmp_path, loop.model, loop.optimizer)
    result = verified(context, step, frozen, between=between)
    if drops:
        assert (result.status, result.causes) == ("verified", ())
        return
    assert result.status == "different"
    assert {cause.kind for cause in result.causes} == {"cross_step_state"}
    assert {cause.origin for cause in result.causes} == {"state"}


def test_gradients_that_are_zeroed_in_place_are_verified(tmp_path: Path) -> None:
    loop = Loop(sgd)

    def step(index: int) -> Any:
        loss = loop.model(loop.inputs[index]).pow(2).mean()
        loss.backward()
        loop.optimizer.step()
        return loss

    def zero(index: int) -> None:
        loop.optimizer.zero_grad(set_to_none=False)

    context = context_of(tmp_path, loop.model, loop.optimizer)
    result = verified(context, step, lambda: step(0), between=zero)
    assert (result.status, result.causes) == ("verified", ())


def test_inference_is_compared_by_its_outputs(tmp_path: Path) -> None:
    inference = Inference(torch.nn.Linear(8, 4))
    result = inference.checked(tmp_path, 1.0)
    assert (result.status, result.update_diff) == ("verified", (0.0,) * 4)
    result = inference.checked(tmp_path, 0.0)
    assert (result.status, result.reason) == ("different", None)


def test_an_expanded_input_is_copied_too(tmp_path: Path) -> None:
    loop = Loop(sgd)
    loop.inputs = [torch.randn(1, 8).expand(16, 8) for _ in range(BATCHES)]
    assert checked(loop, tmp_path).status == "verified"


def test_dropout_repeats_because_the_random_state_is_put_back(tmp_path: Path) -> None:
    torch.manual_seed(0)
    loop = Loop(sgd)
    loop.model.insert(1, torch.nn.Dropout(0.5))
    assert checked(loop, tmp_path).status == "verified"


def test_a_compiled_step_and_a_what_if_are_not_checked(tmp_path: Path) -> None:
    loop = Loop(sgd)
    context = context_of(tmp_path, loop.model, loop.optimizer)
    assert VerifyPass().skip(context) is None
    context.boundary = replace(context.boundary, compiled=True)
    assert VerifyPass().skip(context) == Skip("skipped", Reason("compiled_step"))
    assert context.replay is not None
    context.replay.stubs = Stubs(context.hooks, bool)
    assert VerifyPass().skip(context) == Skip("skipped", Reason("what_if_replay"))


def test_outputs_count_beside_a_state_that_inference_writes(tmp_path: Path) -> None:
    inference = Inference(torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 4))
    assert inference.checked(tmp_path, 1.0).status == "verified"
    result = inference.checked(tmp_path, 0.5)
    assert (result.status, result.causes) == ("different", ())


def test_two_batches_are_too_few_unless_you_asked_for_two(tmp_path: Path) -> None:
    loop = Loop(sgd)
    loop.inputs = loop.inputs[:3]

    def step(index: int) -> Any:
        if index == len(loop.inputs):
            raise StopIteration
        return loop.step(index)

    def checked_with(wanted: int) -> VerifyResult:
        context = context_of(tmp_path, loop.model, loop.optimizer, verify=wanted)
        return verified(context, step, lambda: loop.step(0, 1.0))

    assert checked_with(2).status == "verified"
    result = checked_with(4)
    assert (result.status, result.reason) == (
        "skipped",
        Reason("few_compared", {"compared": 2, "wanted": 4}),
    )


def test_a_scheduler_of_one_of_two_optimizers_of_a_class_is_named() -> None:
    pair = [torch.optim.Adam([torch.nn.Parameter(torch.ones(1))], lr=0.1) for _ in range(2)]
    before = hyperparameters(pair)
    pair[0].param_groups[0]["lr"] = 0.05
    call = Call("aten.addcdiv_", "form", (0.1,), SourceLine("train.py", 9), True)
    after = Call("aten.addcdiv_", "form", (0.05,), SourceLine("train.py", 9), True)
    found = causes_between(
        StepTrace(calls=[call]), StepTrace(calls=[after]), before, hyperparameters(pair)
    )
    assert [(cause.kind, cause.optimizer) for cause in found] == [("learning_rate", "Adam")]


def test_the_smaller_last_batch_of_an_epoch_is_not_compared(tmp_path: Path) -> None:
    loop = Loop(sgd)
    loop.inputs[2] = torch.randn(4, 8)
    context = context_of(tmp_path, loop.model, loop.optimizer)
    now = iter(loop.inputs)
    context.step_inputs = lambda: (shape_of(next(now)),)
    context.results["inspect"] = InspectResult(
        steps=1, signatures=(), inputs=(), device_ops=(), blockers=(),
        last_batch=LastBatch(36, 16), openings=((TensorShape((16, 8), "float32"),),),
    )  # fmt: skip
    result = verified(context, loop.step, lambda: loop.step(0, 1.0))
    assert (result.status, len(result.update_diff), result.causes) == ("verified", 4, ())
