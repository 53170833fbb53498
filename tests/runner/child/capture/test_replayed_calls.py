"""The part of a script's calls in a step that one graph launch replaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from launchscope.runner.child.capture.replayed_calls import ReplayedCalls
from launchscope.runner.child.events.events import NO_OBSERVER
from launchscope.runner.child.events.hooks import Hooks

X, Y = torch.ones(4, 3), torch.zeros(4, dtype=torch.long)


class Loop:
    """A training loop, its calls, and what a launch of its graph was given."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Linear(3, 2)
        self.optimizer: Any = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.hooks = Hooks(torch, NO_OBSERVER)
        self.hooks.install()
        self.launches: list[list[tuple[torch.Tensor, torch.Tensor]]] = []
        self.calls = ReplayedCalls(self.hooks, [self.net], [self.optimizer])

    def step(self, x: torch.Tensor = X) -> Any:
        self.calls.step_begins()
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.net(x), Y[: len(x)])
        loss.backward()
        self.optimizer.step()
        self.calls.step_ends()
        return loss

    def capture(self) -> torch.Tensor:
        """The output of the captured step, whose later steps are replayed."""
        outputs: list[torch.Tensor] = []
        hook = self.net.register_forward_hook(lambda *call: outputs.append(call[2]))
        self.calls.record()
        self.step()
        hook.remove()
        self.calls.replay(self.launches.append)
        return outputs[0]

    @property
    def weights(self) -> torch.Tensor:
        return self.net.weight.detach().clone()


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.calls.close()
    made.hooks.remove()


def test_a_replayed_step_is_one_launch_and_changes_nothing_itself(loop: Loop) -> None:
    output = loop.capture()
    before = loop.weights
    inputs = torch.rand(4, 3)
    loss = loop.step(inputs)
    assert torch.equal(loss, nn.functional.cross_entropy(output, Y))  # of the captured output
    assert torch.equal(loop.weights, before)
    ((pair,),) = loop.launches
    assert pair[0] is X
    assert pair[1] is inputs
    assert (loop.calls.launches, loop.calls.different) == (1, 0)


def test_the_calls_are_the_scripts_own_again_once_they_are_closed(loop: Loop) -> None:
    loop.capture()
    loop.calls.close()
    before = loop.weights
    loop.step()
    assert not torch.equal(loop.weights, before)
    assert not loop.launches


def test_a_step_of_another_shape_is_eager_to_its_end(loop: Loop) -> None:
    loop.capture()
    before = loop.weights
    loop.step(torch.ones(2, 3))
    assert not torch.equal(loop.weights, before)
    assert (loop.calls.launches, loop.calls.different) == (0, 1)
    loop.step()
    assert loop.calls.launches == 1


def test_a_forward_outside_of_a_step_is_an_evaluation(loop: Loop) -> None:
    output = loop.capture()
    assert torch.equal(loop.net(X), nn.functional.linear(X, loop.net.weight, loop.net.bias))
    assert output is not loop.net(X)
    assert not loop.launches


def test_a_closure_is_called_once_without_its_backward(loop: Loop) -> None:
    def closure() -> torch.Tensor:
        loop.optimizer.zero_grad()
        loss: torch.Tensor = nn.functional.cross_entropy(loop.net(X), Y)
        loss.backward()
        return loss

    def step() -> Any:
        loop.calls.step_begins()
        loss = loop.optimizer.step(closure)
        loop.calls.step_ends()
        return loss

    loop.calls.record()
    step()
    loop.calls.replay(loop.launches.append)
    before = loop.weights
    assert isinstance(step(), torch.Tensor)
    assert torch.equal(loop.weights, before)
    assert len(loop.launches) == 1


def test_a_scaler_does_nothing_but_scale(loop: Loop) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)

    def step() -> torch.Tensor:
        loop.calls.step_begins()
        loss = nn.functional.cross_entropy(loop.net(X), Y)
        scaled: torch.Tensor = scaler.scale(loss)
        scaled.backward()
        scaler.unscale_(loop.optimizer)
        scaler.step(loop.optimizer)
        loop.calls.step_ends()
        scaler.update()
        return (scaled / loss).detach()

    loop.calls.record()
    step()
    loop.calls.replay(loop.launches.append)
    before = loop.weights
    assert float(step()) == 4.0
    assert torch.equal(loop.weights, before)
    assert len(loop.launches) == 1
