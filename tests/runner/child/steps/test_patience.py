"""How many steps the search takes before it is sure."""

from __future__ import annotations

import pytest
import torch

from launchscope.model import Schedule
from launchscope.runner.child.hooks.hooks import NO_OBSERVER, Hooks
from launchscope.runner.child.step_pattern import Pattern
from launchscope.runner.child.steps.detector import StepDetector


@pytest.mark.parametrize(("patience_s", "steps"), [(0.0, 3), (1e6, 10)])
def test_fewer_steps_are_enough_once_the_search_has_taken_long(
    patience_s: float, steps: int
) -> None:
    net = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters())
    hooks = Hooks(torch, NO_OBSERVER)

    def found(pattern: Pattern | None) -> None:
        hooks.observer = NO_OBSERVER

    hooks.observer = StepDetector(torch, Schedule(), patience_s, hooks, found, None)
    hooks.install()
    made = 0
    try:
        while hooks.observer is not NO_OBSERVER:
            optimizer.zero_grad()
            net(torch.ones(4)).sum().backward()
            optimizer.step()
            made += 1
    finally:
        hooks.remove()
    assert made == steps
