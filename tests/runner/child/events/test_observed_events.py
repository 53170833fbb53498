"""What reaches the observer."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from launchscope.runner.child.events.events import StepObserver
from launchscope.runner.child.events.hooks import Hooks

X = torch.ones(1, 4)
STEP = [
    *("forward_begin", "forward_end", "backward_begin", "backward_end"),
    *("optimizer_begin", "optimizer_end"),
]


def in_thread(action: Callable[[], object]) -> None:
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()


class Observed:
    """A model, its optimizer, and the names of the events that they make."""

    def __init__(self) -> None:
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.events: list[str] = []
        names = [name for name in vars(StepObserver) if not name.startswith("_")]
        note = self.events.append
        log: Any = SimpleNamespace(**{n: lambda *_, n=n: note(n) for n in names})
        self.hooks = Hooks(torch, log)
        self.hooks.install()

    def backward(self) -> Any:
        self.model(X).sum().backward()

    def since(self, action: Callable[[], object]) -> list[str]:
        self.events.clear()
        action()
        return list(self.events)

    def step(self) -> list[str]:
        return self.since(lambda: (self.backward(), self.optimizer.step()))


@pytest.fixture(params=["all modules", "one module"])
def observed(request: pytest.FixtureRequest) -> Iterator[Observed]:
    it = Observed()
    it.step()
    if request.param == "one module":
        it.hooks.watch_modules(frozenset({"Sequential@0"}), zero_grad=False)
    yield it
    it.hooks.remove()
    assert it.step() == []


def test_only_the_outermost_events_are_observed(observed: Observed) -> None:
    assert observed.step() == STEP
    assert observed.since(lambda: observed.optimizer.step(observed.backward)) == STEP[4:]
    assert observed.since(lambda: in_thread(observed.backward)) == []


def test_an_error_of_ours_ends_the_measurement_and_not_the_script(observed: Observed) -> None:
    errors: list[Exception] = []
    observed.hooks.broke = errors.append
    observed.hooks.observer.__dict__.update(dict.fromkeys(STEP, None))
    observed.step()
    assert [type(error) for error in errors] == [TypeError] * 6


def test_graphs_that_inductor_leaves_out_are_noted_with_the_line() -> None:
    hooks, utils = Observed().hooks, importlib.import_module("torch._inductor.cudagraph_utils")
    utils.log_cudagraph_skip_and_bump_counter('mutated inputs\n  File "train.py", line 9, in f\n')
    hooks.remove()
    assert hooks.skipped_graphs == ["mutated inputs train.py:9"]
