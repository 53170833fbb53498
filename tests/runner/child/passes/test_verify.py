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
    TensorShape,
    VerifyResult,
)
from launchscope.runner.child.capture.stubs import Stubs
from launchscope.runner.child.facts.plain_values import shape_of
from launchscope.runner.child.passes import Skip
from launchscope.runner.child.passes.verify import VerifyPass
from tests.runner.steps import context_of, verified

BATCHES = 6


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def small_group(parameters: Any) -> torch.optim.Optimizer:
    """The first weight hardly moves."""
    weights, *rest = list(parameters)
    groups: list[dict[str, Any]] = [{"params": rest}, {"params": [weights], "lr": 1e-5}]
    return torch.optim.SGD(groups, lr=0.1)


class Loop:
    """A small training loop with batches that live where the test can reach them."""

    def __init__(self, make: Callable[[Any], torch.optim.Optimizer] = sgd):
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
        self.optimizer = make(self.model.parameters())
        self.inputs = [torch.randn(16, 8) for _ in range(BATCHES)]
        self.scale: float = 1.0

    @property
    def weight(self) -> Any:
        return next(self.model.parameters())

    def step(self, index: int, scale: float | None = None) -> Any:
        self.optimizer.zero_grad()
        out = self.model(self.inputs[index]) * (self.scale if scale is None else scale)
        loss = out.pow(2).mean()
        loss.backward()
        self.optimizer.step()
        return loss

    def replay(self) -> Any:
        return self.step(0, 1.0)

    def checked(
        self,
        folder: Path,
        step: Callable[[int], Any] | None = None,
        replay: Callable[[], Any] | None = None,
        **more: Any,
    ) -> VerifyResult:
        context = context_of(folder, self.model, self.optimizer)
        return verified(context, step or self.step, replay or self.replay, **more)


def kinds(result: VerifyResult) -> list[str]:
    return [cause.kind for cause in result.causes]


def test_a_step_that_a_replay_repeats_is_verified_and_leaves_what_eager_left(
    tmp_path: Path,
) -> None:
    watched, alone = Loop(), Loop()
    inputs = [batch.clone() for batch in watched.inputs]
    result = watched.checked(tmp_path)
    assert (result.status, result.causes, result.update_diff) == ("verified", (), (0.0,) * 4)
    for index in (0, 0, 1, 2, 3, 4):
        alone.step(index)
    for mine, theirs in zip(watched.model.parameters(), alone.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert all(map(torch.equal, watched.inputs, inputs))


def test_expanded_inputs_and_dropout_are_repeated(tmp_path: Path) -> None:
    loop = Loop()
    loop.model.insert(1, torch.nn.Dropout(0.5))
    loop.inputs = [torch.randn(1, 8).expand(16, 8) for _ in range(BATCHES)]
    assert loop.checked(tmp_path).status == "verified"


def test_a_wrong_update_of_a_group_that_hardly_moves_is_found(tmp_path: Path) -> None:
    loop = Loop(small_group)
    group = loop.optimizer.param_groups[1]

    def replay() -> None:
        group["lr"] *= 2.0
        loop.replay()
        group["lr"] /= 2.0

    result = loop.checked(tmp_path, replay=replay)
    assert (result.status, result.causes) == ("different", ())
    assert result.update_diff == pytest.approx((1.0,) * 4, rel=0.1)


@pytest.mark.parametrize("fault", [0.0, 0.1])
def test_a_rare_difference_between_replays_is_no_fault_and_one_in_all_of_them_is(
    tmp_path: Path, fault: float
) -> None:
    """As where an activation beside the kink of a ReLU falls on either side."""
    loop, replays = Loop(), 0

    def replay() -> None:
        nonlocal replays
        replays += 1
        loop.replay()
        with torch.no_grad():
            rare = 0.05 if replays in (1, 2) else 0.0
            loop.weight[0, 0] += fault + rare + 1e-6 * (replays % 2)

    result = loop.checked(tmp_path, replay=replay)
    assert result.status == ("different" if fault else "verified")
    assert 0 < max(result.noise_floor) < 1e-4
    assert replays == (24 if fault else 8)


@pytest.mark.parametrize("family", ["SGD", "AdamW"])
def test_a_learning_rate_that_a_scheduler_changes_is_named(tmp_path: Path, family: str) -> None:
    loop = Loop(lambda parameters: getattr(torch.optim, family)(parameters, lr=0.1))
    scheduler = torch.optim.lr_scheduler.ExponentialLR(loop.optimizer, 0.5)

    def frozen() -> None:
        (group,) = loop.optimizer.param_groups
        now, group["lr"] = group["lr"], 0.1
        loop.step(0)
        group["lr"] = now

    result = loop.checked(tmp_path, replay=frozen, between=lambda index: scheduler.step())
    assert result.status == "different"
    cause = result.causes[0]
    assert (cause.kind, cause.optimizer, cause.hyperparameter) == ("learning_rate", family, "lr")
    assert (cause.before, cause.after) == (0.1, 0.05)
    assert cause.where is not None
    assert cause.where.file.endswith("test_verify.py")
    assert max(result.update_diff) > 0.4


def test_a_python_value_that_changes_is_named_with_its_line(tmp_path: Path) -> None:
    loop = Loop()

    def colder(index: int) -> None:
        loop.scale *= 0.5

    result = loop.checked(tmp_path, between=colder)
    assert result.status == "different"
    first = result.causes[0]
    assert (first.kind, first.before, first.after) == ("scalar", 1.0, 0.5)
    assert first.op == "aten.mul"
    assert len(result.update_diff) == 4


def test_a_branch_is_named_by_its_first_different_op(tmp_path: Path) -> None:
    loop = Loop()

    def step(index: int) -> Any:
        if index == 2:
            loop.inputs[index].tanh_()
        return loop.step(index)

    result = loop.checked(tmp_path, step)
    assert (result.status, kinds(result)) == ("different", ["branch"])
    assert result.causes[0].op == "aten.tanh_"
    assert result.causes[0].captured_op != "aten.tanh_"
    assert len(result.update_diff) == 3  # the step that went another way cannot be compared


@pytest.mark.parametrize(
    ("kept", "at", "status", "compared"),
    [("nothing", 2, "verified", 3), ("nothing", 0, "skipped", 0), ("averages", 2, "different", 3),
     ("a new tensor", 2, "different", 3)],
)  # fmt: skip
def test_what_a_step_computes_besides_is_a_branch_if_something_comes_of_it(
    tmp_path: Path, kept: str, at: int, status: str, compared: int
) -> None:
    loop, average, history = Loop(), torch.zeros(()), list[Any]()

    def step(index: int) -> Any:
        loss = loop.step(index)
        if index == at:
            more = loss.detach().sqrt()
            assert more.item() > 0.0
            if kept == "averages":
                average.add_(more)
            elif kept == "a new tensor":
                history.append(more)
        return loss

    result = loop.checked(tmp_path, step)
    # A step that cannot be compared op by op is left out.
    assert (result.status, len(result.update_diff)) == (status, compared)
    assert kinds(result) == ["branch"] * (status == "different")


def test_a_tensor_that_a_step_passes_to_the_next_is_no_input(tmp_path: Path) -> None:
    loop = Loop()
    hidden, captured = [torch.zeros(8)], list[Any]()

    def step(index: int) -> Any:
        read = hidden[0]
        captured[:] = captured[:2] or [read]
        hidden[0] = read * 0.5 + loop.inputs[index].mean(0)
        return loop.step(index)

    def frozen() -> None:
        (captured[0] * 0.5 + loop.inputs[0].mean(0)).sum()
        loop.step(0)

    result = loop.checked(tmp_path, step, frozen)
    assert (result.status, kinds(result)) == ("different", ["cross_step_state"])


@pytest.mark.parametrize("drops", [True, False])
def test_gradients_that_a_step_drops_unused_make_no_difference(tmp_path: Path, drops: bool) -> None:
    loop, of_steps = Loop(), list[Any]()

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
    result = loop.checked(tmp_path, step, frozen, between=between)
    assert result.status == ("verified" if drops else "different")
    origins = {(cause.kind, cause.origin) for cause in result.causes}
    assert origins == (set() if drops else {("cross_step_state", "state")})


@pytest.mark.parametrize(
    ("first", "scale"), [(torch.nn.Identity(), 0.0), (torch.nn.BatchNorm1d(8), 0.5)]
)
def test_inference_is_compared_by_its_outputs_also_beside_a_state_that_it_writes(
    tmp_path: Path, first: Any, scale: float
) -> None:
    model = torch.nn.Sequential(first, torch.nn.Linear(8, 4))
    inputs = [torch.randn(16, 8) for _ in range(BATCHES)]

    @torch.no_grad()
    def checked(scale: float) -> VerifyResult:
        results: list[Any] = []

        def step(index: int) -> Any:
            results.append(model(inputs[index]))
            return results[-1]

        context = context_of(tmp_path, model)
        context.boundary = replace(context.boundary, scope="forward")
        # A replay writes where the captured step did, the second one here.
        return verified(context, step, lambda: results[1].copy_(model(inputs[0]) * scale))

    result = checked(1.0)
    assert (result.status, result.update_diff) == ("verified", (0.0,) * 4)
    result = checked(scale)
    assert (result.status, result.reason, result.causes) == ("different", None, ())


def test_a_compiled_step_and_a_what_if_are_not_checked(tmp_path: Path) -> None:
    loop = Loop()
    context = context_of(tmp_path, loop.model, loop.optimizer)
    assert VerifyPass().skip(context) is None
    context.boundary = replace(context.boundary, compiled=True)
    assert VerifyPass().skip(context) == Skip("skipped", Reason("compiled_step"))
    assert context.replay is not None
    context.replay.stubs = Stubs(context.hooks, bool)
    assert VerifyPass().skip(context) == Skip("skipped", Reason("what_if_replay"))


def test_two_batches_are_too_few_unless_you_asked_for_two(tmp_path: Path) -> None:
    loop = Loop()
    loop.inputs = loop.inputs[:3]

    def step(index: int) -> Any:
        if index == len(loop.inputs):
            raise StopIteration
        return loop.step(index)

    def checked_with(wanted: int) -> VerifyResult:
        context = context_of(tmp_path, loop.model, loop.optimizer, verify=wanted)
        return verified(context, step, loop.replay)

    assert checked_with(2).status == "verified"
    result = checked_with(4)
    few = Reason("few_compared", {"compared": 2, "wanted": 4})
    assert (result.status, result.reason) == ("skipped", few)


def test_the_smaller_last_batch_of_an_epoch_is_not_compared(tmp_path: Path) -> None:
    loop = Loop()
    loop.inputs[2] = torch.randn(4, 8)
    context = context_of(tmp_path, loop.model, loop.optimizer)
    now = iter(loop.inputs)
    context.step_inputs = lambda: (shape_of(next(now)),)
    context.results["inspect"] = InspectResult(
        steps=1, signatures=(), inputs=(), device_ops=(), blockers=(),
        last_batch=LastBatch(36, 16), openings=((TensorShape((16, 8), "float32"),),),
    )  # fmt: skip
    result = verified(context, loop.step, loop.replay)
    assert (result.status, len(result.update_diff), result.causes) == ("verified", 4, ())
