"""Replays that are also computed eagerly: when, what a difference leads to, and what it costs."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from launchscope.graphed import GraphedError, GraphedWarning, check, graphed
from tests.graphed.emulation import EmulatedGpu, gpu

__all__ = ["gpu"]
Tensor = torch.Tensor
X = torch.ones(4, 8)


class Training:
    """A step whose loss has a factor that nothing can see change."""

    def __init__(self, **options: Any):
        torch.manual_seed(0)
        self.hidden = UserDict(factor=1.0)
        self.model = model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.Linear(8, 1))
        self.optimizer = optimizer = torch.optim.AdamW(model.parameters())

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = model(x).square().mean() * self.hidden["factor"]
            loss.backward()
            optimizer.step()
            return loss.detach()

        self.step: Any = graphed(**options)(step) if options else step

    def run(self, calls: int) -> list[float]:
        return [float(self.step(X)) for _ in range(calls)]

    def change(self) -> None:
        self.hidden["factor"] = 2.0

    def weights(self) -> list[Tensor]:
        return [p.detach().clone() for p in self.model.parameters()]


def both(calls: int, **options: Any) -> tuple[Training, Training]:
    """Trained with the same random numbers, eagerly and under `graphed`."""
    pair = Training(), Training(**options)
    for each in pair:
        torch.manual_seed(1)
        each.run(calls)
    return pair


def test_the_first_replays_are_checked_and_then_ever_fewer(gpu: EmulatedGpu) -> None:
    training = Training(warmup=3)
    training.run(15)
    [program] = training.step._programs()
    assert (training.step.stats.checked, program.next_check) == (2, 100)


def test_the_plan_keeps_checks_at_one_percent_of_the_time(gpu: EmulatedGpu) -> None:
    training = Training(warmup=3)
    training.run(5)
    [program] = training.step._programs()
    gaps = []
    for replays, cost in ((10, 5.0), (100, 5.0), (1_100, 40.0)):
        program.replays = replays
        check.plan(program, cost, None)
        gaps.append(program.next_check - replays)
    assert gaps == [90, 1_000, 4_000]


@pytest.mark.parametrize("options", [{"warmup": 3}, {"check": 1}, {"check": 0}], ids=str)
def test_checks_change_nothing(gpu: EmulatedGpu, options: dict[str, Any]) -> None:
    eager, replayed = both(16, **options)
    for one, other in zip(eager.weights(), replayed.weights()):
        torch.testing.assert_close(one, other)
    assert replayed.step.stats.replayed == 12


def test_a_difference_keeps_what_eager_computes_and_ends_the_graphs(gpu: EmulatedGpu) -> None:
    eager, replayed = both(8, check=2)
    for each in (eager, replayed):
        each.change()
        torch.manual_seed(2)
    expected = eager.run(1)
    torch.manual_seed(2)
    with pytest.warns(GraphedWarning) as caught:
        found = replayed.run(2)  # replay 5 is not checked, replay 6 is
    assert found[0] == pytest.approx(expected[0] / 2, rel=1e-3)
    [warning] = caught
    assert "differs from eager" in str(warning.message)
    assert "replays after replay 4 may have been wrong" in str(warning.message)
    assert f"[{__file__}:" in str(warning.message)
    assert replayed.step.stats.graphs == 0


def test_a_number_that_the_step_returns_is_compared(gpu: EmulatedGpu) -> None:
    numbers = UserDict(rate=1.0)

    @graphed(check=1)
    def step(x: Tensor) -> tuple[Tensor, float]:
        return x.sum(), numbers["rate"]

    assert [step(X)[1] for _ in range(6)] == [1.0] * 6
    numbers["rate"] = 2.0
    with pytest.warns(GraphedWarning, match="differs from eager.* in what it returns"):
        assert [step(X)[1] for _ in range(2)] == [2.0] * 2


def test_a_difference_can_be_an_error(gpu: EmulatedGpu) -> None:
    training = Training(check=1, on_difference="raise")
    training.run(6)
    training.change()
    with pytest.raises(GraphedError, match="differs from eager"):
        training.run(1)


def test_what_two_eager_runs_differ_by_is_no_difference(
    gpu: EmulatedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operations without a deterministic form."""
    noise = torch.Generator().manual_seed(3)

    def noisy(run: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            results = run(*args, **kwargs)
            for result in results if kwargs.get("copied") else ():
                result.value.mul_(1 + 0.01 * torch.randn((), generator=noise))
            return results

        return call

    monkeypatch.setattr(check.Check, "_results", noisy(check.Check._results))
    training = Training(check=1)
    training.run(8)
    assert training.step.stats.checked
    assert training.step.stats.graphs == 1


def test_what_a_step_makes_of_rounded_parameters_is_no_difference(gpu: EmulatedGpu) -> None:
    """As one in TF32 that ends in Adam: the factor is off by one unit of float32."""
    hidden = UserDict(factor=1.0)
    weight = nn.Parameter(torch.linspace(1, 2, 8))
    optimizer = torch.optim.SGD([weight], lr=1e-9)

    @graphed(check=1, on_difference="raise")
    def step(x: Tensor) -> None:
        optimizer.zero_grad()
        (1e6 * weight * hidden["factor"] * x).sin().mean().backward()
        optimizer.step()

    for _ in range(6):
        step(X)
    hidden["factor"] += 2.0**-23
    step(X)
    hidden["factor"] = 1.1
    with pytest.raises(GraphedError, match="differs from eager"):
        step(X)


def test_a_check_does_not_change_how_an_optimizer_in_a_graph_rounds(gpu: EmulatedGpu) -> None:
    """RAdam's `capturable` form cancels in float32 where its rectification begins, at step 6."""

    def trained(**options: Any) -> tuple[Tensor, Any]:
        weight = nn.Parameter(torch.linspace(0.1, 1, 8))
        optimizer = torch.optim.RAdam([weight], lr=1e-2)

        @graphed(**options)
        def step(x: Tensor) -> None:
            optimizer.zero_grad()
            (x * weight).square().mean().backward()
            optimizer.step()

        for _ in range(12):
            step(X)
        return weight.detach(), step.stats

    (unchecked, _), (checked, stats) = trained(check=0), trained(check=1)
    assert (stats.checked, stats.graphs) == (8, 1)
    assert torch.equal(unchecked, checked)


def test_without_room_there_is_no_check_and_the_stats_say_so(gpu: EmulatedGpu) -> None:
    gpu.free_bytes = 100
    _, replayed = both(10, warmup=3)
    stats = replayed.step.stats
    assert (stats.checked, stats.replayed) == (0, 6)
    assert "not checked: the GPU has no room to check replays" in str(stats)


def test_a_check_that_runs_out_of_memory_leaves_the_call_as_it_is(gpu: EmulatedGpu) -> None:
    memory = UserDict(full=False)

    def fill(module: nn.Module, args: Any) -> None:
        if memory["full"]:
            with torch.no_grad():
                module.bias.add_(1.0)  # type: ignore[operator]
            raise torch.cuda.OutOfMemoryError("no memory")

    eager, replayed = Training(), Training(check=6)
    replayed.model[2].register_forward_pre_hook(fill)
    for each in (eager, replayed):
        torch.manual_seed(1)
        each.run(9)
        memory["full"] = each is replayed
        each.run(1)
    for one, other in zip(eager.weights(), replayed.weights()):
        torch.testing.assert_close(one, other)
    stats = replayed.step.stats
    assert stats.unchecked is not None
    assert (stats.checked, stats.replayed) == (0, 6)


def test_a_checked_replay_has_the_learning_rate_of_its_call(gpu: EmulatedGpu) -> None:
    results = []
    for options in ({}, {"check": 1}):
        training = Training(**options)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(training.optimizer, 0.5)
        torch.manual_seed(1)
        for _ in range(8):
            training.run(1)
            scheduler.step()
        results.append(training.weights())
    assert training.step.stats.checked
    for one, other in zip(*results):
        torch.testing.assert_close(one, other)
