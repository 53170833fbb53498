"""The check of a replay against eager, with a function on the CPU in place of the graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from launchscope.model import (
    Reason,
    VerifyResult,
)
from launchscope.runner.child.capture.stubs import Stubs
from launchscope.runner.child.passes import Skip
from launchscope.runner.child.passes.verify import VerifyPass
from tests.runner.steps import context_of, verified

BATCHES = 6


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


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
