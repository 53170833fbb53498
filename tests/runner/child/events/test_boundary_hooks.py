"""Steps followed by their boundaries alone: the same steps as with every event observed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from launchscope.runner.child.events.boundary_hooks import StepBoundaryHooks
from launchscope.runner.child.events.events import NO_OBSERVER
from launchscope.runner.child.events.hooks import Hooks
from launchscope.runner.child.events.step_pattern import (
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    Pattern,
    Token,
)

X = torch.ones(1, 4)


def pattern(closing: Any, backwards: int = 1, forwards: int = 1, optimizers: int = 1) -> Pattern:
    tokens = (
        *[Token(FORWARD, "Linear@0", closing != "forward")] * forwards,
        *[Token(BACKWARD, BACKWARD)] * backwards,
        *[Token(OPTIMIZER, "SGD@0")] * optimizers,
    )
    return Pattern(tokens, closing)


TRAINING = pattern("optimizer")


class Followed:
    """A model whose steps are followed by their boundaries; `calls` are those of the hooks."""

    def __init__(self, step: Pattern, keys: frozenset[str]):
        self.model = torch.nn.Linear(4, 4)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.calls: list[str] = []
        self.hooks = Hooks(torch, NO_OBSERVER)
        self.hooks.install()
        self.model(X)  # seen once, so that it has a key
        self.boundary = StepBoundaryHooks(
            torch,
            self.hooks.thread,
            step,
            begin=lambda: self.calls.append("begin"),
            end=lambda: self.calls.append("end"),
            over=lambda: None,
            failed=lambda _: None,
        )
        if keys:
            assert self.follow(keys)

    def follow(self, keys: frozenset[str]) -> bool:
        self.hooks.watch_modules(keys, zero_grad=False)
        return self.hooks.observe_boundaries(self.boundary)

    def backward(self) -> None:
        self.model(X).sum().backward()

    def step(self) -> None:
        self.backward()
        self.optimizer.step()


@pytest.fixture
def followed() -> Iterator[Callable[[Pattern], Followed]]:
    made: list[Followed] = []

    def make(step: Pattern) -> Followed:
        made.append(Followed(step, frozenset({"Linear@0"})))
        return made[-1]

    yield make
    for one in made:
        one.hooks.remove()
        assert "_compiled_call_impl" not in vars(one.model)


Make = Callable[[Pattern], Followed]


def test_a_training_step_runs_from_its_forward_to_its_optimizer(followed: Make) -> None:
    it = followed(TRAINING)
    for _ in range(2):
        it.step()
        with torch.no_grad():
            it.model(X)
    assert it.calls == ["begin", "end"] * 2


def test_accumulated_gradients_are_one_step(followed: Make) -> None:
    it = followed(pattern("optimizer", forwards=2, backwards=2))
    for _ in range(2):
        it.backward()
        it.step()
    assert it.calls == ["begin", "end"] * 2


def test_a_step_begins_again_after_an_evaluation_or_a_skipped_optimizer(followed: Make) -> None:
    it = followed(TRAINING)
    it.backward()
    it.step()
    assert it.calls == ["begin", "begin", "end"]


def test_a_forward_run_again_by_the_backward_begins_nothing(followed: Make) -> None:
    it = followed(TRAINING)
    loss: Any = checkpoint(it.model, X.clone().requires_grad_(), use_reentrant=False)
    loss.sum().backward()
    it.optimizer.step()
    assert it.calls == ["begin", "end"]


def test_steps_with_more_events_need_all_hooks() -> None:
    assert StepBoundaryHooks.enough_for(TRAINING)
    for step in (
        pattern("optimizer", optimizers=2),
        pattern("forward", forwards=2),
        pattern("next"),
    ):
        assert not StepBoundaryHooks.enough_for(step)


def test_nested_models_and_optimizers_need_all_hooks() -> None:
    class LookAround(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            closure()

    it = Followed(TRAINING, frozenset())
    whole = torch.nn.Sequential(it.model)
    whole(X)
    assert not it.follow(frozenset({"Linear@0", "Sequential@1"}))
    assert it.follow(frozenset({"Linear@0"}))
    it.hooks.remove()
    it = Followed(TRAINING, frozenset())
    optimizer: Any = LookAround(it.model.parameters())
    optimizer.step(it.backward)
    assert not it.follow(frozenset({"Linear@0"}))
    it.hooks.remove()
