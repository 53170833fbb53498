"""Python values that a step reads, and that change after its capture."""

from __future__ import annotations

import functools
from argparse import Namespace
from collections import UserDict
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from launchscope.graphed import graphed
from tests.graphed.emulation import EmulatedGpu, gpu

pytestmark = pytest.mark.filterwarnings("ignore::launchscope.graphed.GraphedWarning")
__all__ = ["gpu"]
Tensor = torch.Tensor
Source = tuple[Callable[[], float], Callable[[], object]]  # of a rate; what changes it
CALLS, CHANGED = 16, 8
rate = 1.0


def a_global() -> Source:
    def change(value: float) -> None:
        global rate
        rate = value

    change(1.0)
    return lambda: rate, lambda: change(2.0)


def a_closure() -> Source:
    held = 1.0

    def change() -> None:
        nonlocal held
        held = 2.0

    return lambda: held, change


def a_default_of_a_function() -> Source:
    box = [1.0]

    def read(box: list[float] = box) -> float:
        return box[0]

    return read, lambda: box.__setitem__(0, 2.0)


def an_argument_of_a_partial_function() -> Source:
    box = [1.0]
    return functools.partial(lambda box: box[0], box), lambda: box.__setitem__(0, 2.0)


def of(held: Any, read: Callable[[Any], float], change: Callable[[Any], object]) -> Source:
    return lambda: read(held), lambda: change(held)


def record() -> Any:
    """An instance of a class of its own."""
    return type("Record", (), {"rate": 1.0, "__call__": lambda self: 1.0})()


def set_rate(held: Any) -> None:
    held.rate = 2.0


def set_item(held: Any) -> None:
    held["rate"] = 2.0


SEEN: dict[str, Callable[[], Source]] = {
    "a global": a_global,
    "a closure": a_closure,
    "a default of a function": a_default_of_a_function,
    "an argument of a partial function": an_argument_of_a_partial_function,
    "an attribute": lambda: of(Namespace(rate=1.0), lambda held: held.rate, set_rate),
    "of its class": lambda: of(record(), lambda held: held.rate, lambda h: set_rate(type(h))),
    "of a class": lambda: of(type(record()), lambda held: held.rate, set_rate),
    "one that hides another": lambda: of(record(), lambda held: held.rate, set_rate),
    "one named in a text": lambda: of(
        Namespace(rate=1.0), lambda held: getattr(held, "rate", 0.0), set_rate
    ),
    "a method that is replaced": lambda: of(
        record(), lambda held: held(), lambda held: setattr(type(held), "__call__", lambda _: 2.0)
    ),
    "an entry of a dictionary": lambda: of({"rate": 1.0}, lambda held: held["rate"], set_item),
    "the length of a list": lambda: of([1.0], lambda held: len(held), lambda h: h.append(1.0)),
    "the shape of a tensor": lambda: of(
        torch.ones(2), lambda held: len(held), lambda held: setattr(held, "data", torch.ones(1))
    ),
}


def an_attribute_of_a_tensor() -> Source:
    held: Any = torch.ones(1)
    held.rate = 1.0
    return of(held, lambda held: held.rate, set_rate)


def an_iterator() -> Source:
    rates = iter([1.0] * CHANGED + [2.0] * CALLS)
    return lambda: next(rates), lambda: None


# What no guard sees: a check finds it (docs/graphed.md).
UNSEEN: dict[str, Callable[[], Source]] = {
    "a dictionary of a library": lambda: of(
        UserDict(rate=1.0), lambda held: held["rate"], set_item
    ),
    "an attribute named by a computed text": lambda: of(
        Namespace(rate=1.0), lambda held: getattr(held, "".join(["ra", "te"])), set_rate
    ),
    "an array of NumPy": lambda: of(
        numpy.ones(3), lambda held: float(held[0]), lambda held: held.__setitem__(0, 2.0)
    ),
    "an iterator": an_iterator,
    "a rate of an optimizer": lambda: of(
        torch.optim.SGD([torch.ones(1)], lr=1.0).param_groups[0],
        lambda held: held["lr"],
        lambda held: held.update(lr=2.0),
    ),
    "a hook that comes later": lambda: of(
        nn.Identity(),
        lambda held: held(torch.ones(1)),
        lambda held: held.register_forward_hook(lambda *given: 2 * given[-1]),
    ),
    "an attribute of a tensor": an_attribute_of_a_tensor,
}


def losses(wrap: Callable[[Any], Any], rate: Callable[[], float], change: Any) -> list[float]:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(8))

        def forward(self, x: Tensor) -> Tensor:
            return x * self.weight * rate()

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    wrapped, found = wrap(step), []
    for number in range(CALLS):
        if number == CHANGED:
            change()
        found.append(float(wrapped(torch.ones(4, 8))))
    return found


@pytest.mark.parametrize("source", SEEN.values(), ids=SEEN)
def test_a_value_that_changes_is_never_replayed_stale(
    gpu: EmulatedGpu, source: Callable[[], Source]
) -> None:
    expected = losses(lambda step: step, *source())
    steps: list[Any] = []

    def wrap(step: Any) -> Any:
        steps.append(graphed(check=0)(step))
        return steps[0]

    found = losses(wrap, *source())
    assert found == pytest.approx(expected)
    assert steps[0].stats.replayed


@pytest.mark.parametrize("source", UNSEEN.values(), ids=UNSEEN)
def test_a_check_finds_what_no_guard_sees(gpu: EmulatedGpu, source: Callable[[], Source]) -> None:
    expected = losses(lambda step: step, *source())
    assert losses(graphed(check=1), *source()) == pytest.approx(expected)


class Seen:
    """Hooks that leave something in Python."""

    def __init__(self) -> None:
        self.calls, self.values = 0, list[Any]()

    def count(self, *_: Any) -> None:
        self.calls += 1

    def keep(self, *_: Any) -> None:
        self.values.append(len(_))

    def print(self, *_: Any) -> None:
        print(end="")


@pytest.mark.parametrize("effect", ["count", "keep", "print"])
@pytest.mark.parametrize("register", ["register_forward_hook", "register_full_backward_hook"])
def test_an_effect_of_a_hook_keeps_the_step_eager_and_is_told_with_its_line(
    gpu: EmulatedGpu, effect: str, register: str
) -> None:
    model, seen = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), Seen()
    hook = getattr(seen, effect)
    getattr(model[1], register)(hook)
    step = graphed(lambda x: model(x).mean().backward())
    for _ in range(CALLS):
        step(torch.ones(4, 8))
    [reason] = [reason for reason in step.stats.reasons if reason.code != "warmup"]
    assert reason.code == "side_effect"
    assert reason.where == f"{__file__}:{hook.__code__.co_firstlineno + 1}"


class Descent(torch.optim.Optimizer):
    """As people write their own."""

    def __init__(self, params: Any):
        super().__init__(params, {"lr": 0.1})

    def step(self, closure: Any = None) -> Any:
        with torch.no_grad():
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.sub_(group["lr"] * parameter.grad)


def test_the_rate_of_an_optimizer_of_one_s_own_may_change(gpu: EmulatedGpu) -> None:
    def run(wrap: Callable[[Any], Any]) -> tuple[Tensor, Any]:
        weight = nn.Parameter(torch.ones(8))
        optimizer = Descent([weight])

        def step(x: Tensor) -> None:
            optimizer.zero_grad()
            (x * weight).square().mean().backward()
            optimizer.step()

        graphed_step = wrap(step)
        for _ in range(CALLS):
            optimizer.param_groups[0]["lr"] *= 0.9
            graphed_step(torch.ones(4, 8))
        return weight.detach(), graphed_step

    (found, step), (expected, _) = run(graphed), run(lambda step: step)
    torch.testing.assert_close(found, expected)
    assert step.stats.replayed


@pytest.mark.filterwarnings("ignore:.*runs eagerly")
def test_gradients_in_new_memory_at_each_call_make_the_step_eager_with_a_reason(
    gpu: EmulatedGpu,
) -> None:
    model = nn.Linear(8, 8)

    @graphed(max_graphs=60)
    def step(x: Tensor) -> None:
        model(x).square().mean().backward()

    kept = []
    for _ in range(60):
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
            kept.append(parameter.grad)
        step(torch.ones(4, 8))
    assert not step.stats.replayed
    assert step.stats.reasons[-1].code == "gradients"
