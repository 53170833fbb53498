"""A pass in the place of what a script calls in its steps."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from launchscope.runner.child.events.boundary_hooks import StepBoundaryHooks
from launchscope.runner.child.events.call_seam import CallSeam, ScriptCall
from launchscope.runner.child.events.events import NO_OBSERVER, StepObserver
from launchscope.runner.child.events.hooks import Hooks
from launchscope.runner.child.events.step_pattern import (
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    Pattern,
    Token,
)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> Any:
        return self.inner(x) * scale


class Own(torch.optim.SGD):
    """An optimizer with its own step and zero_grad, each of which calls that of torch."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)

    def zero_grad(self, set_to_none: bool = False) -> None:
        super().zero_grad(set_to_none)


@pytest.fixture
def hooks() -> Iterator[Hooks]:
    made = Hooks(torch, NO_OBSERVER)
    made.install()
    made.ignores_thread()  # this one is observed
    yield made
    made.remove()


@pytest.fixture
def seam(hooks: Hooks) -> Iterator[CallSeam]:
    made = CallSeam(hooks)
    yield made
    made.close()


class Recorded:
    """Replacements that write down each call; `make` says whether they make it."""

    def __init__(self, make: bool):
        self.calls: list[ScriptCall] = []
        self._make = make

    def __call__(self, call: ScriptCall) -> Any:
        self.calls.append(call)
        return call.make() if self._make else None

    @property
    def names(self) -> list[str]:
        return [call.name for call in self.calls]


@pytest.mark.parametrize("make", [True, False])
@pytest.mark.parametrize("by_boundaries", [True, False])
def test_replaced_calls_are_the_events_that_they_were(
    hooks: Hooks, seam: CallSeam, make: bool, by_boundaries: bool
) -> None:
    net, x, events, steps = Net(), torch.ones(1, 2), list[str](), list[str]()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    output = net(x)
    names = [name for name in vars(StepObserver) if not name.startswith("_")]
    hooks.observer = SimpleNamespace(  # type: ignore[assignment]
        **{name: lambda *_, name=name: events.append(name) for name in names}
    )
    tokens = Token(FORWARD, "Net@0"), Token(BACKWARD, BACKWARD), Token(OPTIMIZER, "SGD@0")
    nothing: Any = lambda *_: None  # noqa: E731
    boundary = StepBoundaryHooks(
        torch, hooks.thread, Pattern(tokens, "optimizer"),
        lambda: steps.append("begin"), lambda: steps.append("end"), *[nothing] * 3,
    )  # fmt: skip
    hooks.watch_modules(frozenset({"Net@0"}), zero_grad=True)
    assert not by_boundaries or hooks.observe_boundaries(boundary)
    replacement: Any = ScriptCall.make if make else lambda call: output
    seam.replace_modules([net], replacement)
    seam.replace_backward(replacement)
    seam.replace_zero_grad(replacement)
    seam.replace_optimizer_steps([optimizer], replacement)
    for _ in range(2):
        optimizer.zero_grad()
        net(x).sum().backward()
        optimizer.step()
    expected = [
        *("zero_grad_begin", "forward_begin", "forward_end", "backward_begin", "backward_end"),
        *("optimizer_begin", "optimizer_end"),
    ]
    assert steps == ["begin", "end"] * 2 * by_boundaries
    assert events == (expected[:1] if by_boundaries else expected) * 2


def test_a_replacement_gets_the_arguments_and_may_make_the_call(seam: CallSeam) -> None:
    net, x, seen = Net(), torch.ones(1, 2), list[ScriptCall]()

    def doubled(call: ScriptCall) -> Any:
        seen.append(call)
        return 2 * call.make()

    usual = net(x, scale=3.0)
    seam.replace_modules([net, net.inner], doubled)
    assert torch.equal(net(x, scale=3.0), 2 * usual)
    (call,) = seen  # the inner module was called by the outer one
    assert (call.owner, call.args, call.kwargs) == (net, (x,), {"scale": 3.0})
    net.inner(x)
    assert [call.owner for call in seen] == [net, net.inner]


def test_a_step_that_a_scheduler_has_wrapped_is_replaced(seam: CallSeam) -> None:
    net = Net()
    optimizer = Own(net.parameters(), lr=0.1)
    net(torch.ones(1, 2)).sum().backward()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    wrapped, recorded = vars(optimizer)["step"], Recorded(make=False)
    optimizer.step()
    seam.replace_optimizer_steps([optimizer], recorded)
    seam.replace_zero_grad(recorded)
    later = torch.optim.lr_scheduler.StepLR(optimizer, 1)  # wraps what is there
    before = net.inner.bias.clone()
    optimizer.step()
    optimizer.zero_grad()
    net.zero_grad()
    assert torch.equal(net.inner.bias, before)
    assert recorded.names == ["step", "zero_grad", "zero_grad"]
    assert [call.owner for call in recorded.calls] == [optimizer, optimizer, net]
    scheduler.step()
    later.step()
    seam.close()
    assert vars(optimizer)["step"] is wrapped
    optimizer.step()
    assert not torch.equal(net.inner.bias, before)
