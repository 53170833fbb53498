"""Python values that a step reads, and that change after its capture."""

from __future__ import annotations

import functools
from argparse import Namespace
from collections import UserDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from launchscope.graphed import graphed
from tests.graphed.emulation import EmulatedGpu, gpu

pytestmark = pytest.mark.filterwarnings("ignore::launchscope.graphed.GraphedWarning")
__all__ = ["gpu"]
Tensor = torch.Tensor
Source = tuple[Callable[[], float], Callable[[], object]]  # of a rate; what changes it
CALLS, CHANGED = 16, 8
rate = 1.0


@dataclass
class Record:
    rate: float = 1.0
    scale = 1.0


class Rate:
    def __call__(self) -> float:
        return 1.0


def set_global(value: float) -> None:
    global rate
    rate = value


def a_global() -> Source:
    set_global(1.0)
    return lambda: rate, lambda: set_global(2.0)


def a_closure() -> Source:
    held = 1.0

    def change() -> None:
        nonlocal held
        held = 2.0

    return lambda: held, change


def an_attribute() -> Source:
    held = Record()
    return lambda: held.rate, lambda: setattr(held, "rate", 2.0)


def an_attribute_of_a_class() -> Source:
    held = Record()
    Record.scale = 1.0
    return lambda: held.scale, lambda: setattr(Record, "scale", 2.0)


def an_attribute_of_a_class_that_code_names() -> Source:
    Record.scale = 1.0
    return lambda: Record.scale, lambda: setattr(Record, "scale", 2.0)


def an_attribute_that_hides_another() -> Source:
    held = Record()
    Record.scale = 1.0
    return lambda: held.scale, lambda: setattr(held, "scale", 2.0)


def an_attribute_of_a_library_s_object() -> Source:
    args = Namespace(rate=1.0)
    return lambda: args.rate, lambda: setattr(args, "rate", 2.0)


def an_attribute_named_in_a_text() -> Source:
    args = Namespace(rate=1.0)
    return lambda: getattr(args, "rate", 0.0), lambda: setattr(args, "rate", 2.0)


def an_entry_of_a_dictionary() -> Source:
    table = {"rate": 1.0}
    return lambda: table["rate"], lambda: table.update(rate=2.0)


def the_length_of_a_list() -> Source:
    rates = [1.0]
    return lambda: float(len(rates)), lambda: rates.append(1.0)


def an_array_of_numpy() -> Source:
    rates = numpy.ones(3)
    return lambda: float(rates[0]), lambda: rates.__setitem__(0, 2.0)


def a_default_of_a_function() -> Source:
    box = [1.0]

    def read(box: list[float] = box) -> float:
        return box[0]

    return read, lambda: box.__setitem__(0, 2.0)


def an_argument_of_a_partial_function() -> Source:
    box = [1.0]
    return functools.partial(lambda box: box[0], box), lambda: box.__setitem__(0, 2.0)


def a_method_that_is_replaced() -> Source:
    return Rate(), lambda: setattr(Rate, "__call__", lambda self: 2.0)


def the_shape_of_a_tensor() -> Source:
    held = torch.ones(2)
    return lambda: float(len(held)), lambda: setattr(held, "data", torch.ones(1))


SEEN = [a_global, a_closure, an_attribute, an_attribute_of_a_class,
        an_attribute_of_a_class_that_code_names, an_attribute_that_hides_another,
        an_attribute_of_a_library_s_object, an_attribute_named_in_a_text,
        an_entry_of_a_dictionary, the_length_of_a_list, an_array_of_numpy,
        a_default_of_a_function, an_argument_of_a_partial_function,
        a_method_that_is_replaced, the_shape_of_a_tensor]  # fmt: skip


# What no guard sees: a check finds it (docs/graphed.md).


def a_dictionary_of_a_library() -> Source:
    table = UserDict(rate=1.0)
    return lambda: table["rate"], lambda: table.update(rate=2.0)


def an_attribute_named_by_a_computed_text() -> Source:
    held = Record()
    name = "".join(["ra", "te"])
    return lambda: getattr(held, name), lambda: setattr(held, "rate", 2.0)


def a_large_array() -> Source:
    rates = numpy.ones(5_000)
    return lambda: float(rates[4_000]), lambda: rates.__setitem__(4_000, 2.0)


def an_iterator() -> Source:
    rates = iter([1.0] * CHANGED + [2.0] * CALLS)
    return lambda: next(rates), lambda: None


def an_attribute_of_a_tensor() -> Source:
    held: Any = torch.ones(1)
    held.rate = 1.0
    return lambda: held.rate, lambda: setattr(held, "rate", 2.0)


UNSEEN = [a_dictionary_of_a_library, an_attribute_named_by_a_computed_text, a_large_array,
          an_iterator, an_attribute_of_a_tensor]  # fmt: skip


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


@pytest.mark.parametrize("source", SEEN, ids=lambda source: source.__name__)
def test_a_value_that_changes_is_never_replayed_stale(
    gpu: EmulatedGpu, source: Callable[[], Source]
) -> None:
    expected = losses(lambda step: step, *source())
    setattr(Rate, "__call__", lambda self: 1.0)  # noqa: B010 - one case replaces it
    steps: list[Any] = []

    def wrap(step: Any) -> Any:
        steps.append(graphed(check=0)(step))
        return steps[0]

    found = losses(wrap, *source())
    assert found == pytest.approx(expected)
    assert steps[0].stats.replayed
    setattr(Rate, "__call__", lambda self: 1.0)  # noqa: B010


@pytest.mark.parametrize("source", UNSEEN, ids=lambda source: source.__name__)
def test_a_check_finds_what_no_guard_sees(gpu: EmulatedGpu, source: Callable[[], Source]) -> None:
    expected = losses(lambda step: step, *source())
    assert losses(graphed(check=1), *source()) == pytest.approx(expected)


def trained(
    wrap: Callable[[Any], Any],
    change: Callable[[torch.optim.Optimizer], object],
    loss_of: Callable[[Tensor], Tensor] = Tensor.mean,
) -> tuple[Tensor, Any]:
    """A weight after some steps, between two of which something changes."""
    weight = nn.Parameter(torch.ones(8))
    optimizer = torch.optim.SGD([weight], lr=0.1, fused=True)

    def step(x: Tensor) -> None:
        optimizer.zero_grad()
        loss_of((x * weight).relu()).backward()
        optimizer.step()

    graphed_step = wrap(step)
    for number in range(CALLS):
        if number == CHANGED:
            change(optimizer)
        graphed_step(torch.ones(4, 8))
    return weight.detach(), graphed_step


def parameter_of(optimizer: torch.optim.Optimizer) -> Tensor:
    return optimizer.param_groups[0]["params"][0]  # type: ignore[no-any-return]


def shrink(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    with torch.no_grad():
        parameter_of(optimizer).mul_(0.5)


HOOKS: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "of an optimizer": lambda optimizer: optimizer.register_step_pre_hook(shrink),
    "of a gradient": lambda optimizer: parameter_of(optimizer).register_hook(lambda g: g * 0.5),
}


@pytest.mark.parametrize("where", HOOKS)
def test_a_hook_that_comes_later_runs(gpu: EmulatedGpu, where: str) -> None:
    expected, _ = trained(lambda step: step, HOOKS[where])
    found, step = trained(graphed, HOOKS[where])
    torch.testing.assert_close(found, expected)
    assert step.stats.captured == 2


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
    model, seen = nn.Linear(8, 8), Seen()
    hook = getattr(seen, effect)
    getattr(model, register)(hook)
    _, step = trained(graphed, lambda optimizer: None, lambda x: model(x).mean())
    [reason] = [reason for reason in step.stats.reasons if reason.code != "warmup"]
    assert reason.code == "side_effect"
    assert reason.where == f"{__file__}:{hook.__code__.co_firstlineno + 1}"


class NoRelu(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] * 2 if func is Tensor.relu else func(*args, **(kwargs or {}))


def test_a_mode_of_torch_that_begins_later_is_seen(gpu: EmulatedGpu) -> None:
    def run(wrap: Callable[[Any], Any]) -> tuple[Tensor, Any]:
        mode = NoRelu()
        try:
            return trained(wrap, lambda optimizer: mode.__enter__())  # type: ignore[no-untyped-call]
        finally:
            mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    expected, _ = run(lambda step: step)
    found, step = run(graphed)
    torch.testing.assert_close(found, expected)
    assert step.stats.captured == 2


def test_a_rate_that_the_step_reads_itself_is_guarded_where_the_optimizer_is_eager(
    gpu: EmulatedGpu,
) -> None:
    def run(wrap: Callable[[Any], Any]) -> Tensor:
        weight = nn.Parameter(torch.ones(8))
        optimizer = torch.optim.SGD([weight], lr=0.1)

        def step(x: Tensor) -> None:
            optimizer.zero_grad()
            (x * weight).square().mean().backward()
            with torch.no_grad():
                for group in optimizer.param_groups:
                    weight.mul_(1 - group["lr"])
            optimizer.step()

        graphed_step = wrap(step)
        for number in range(30):
            if number % 10 == 9:
                optimizer.param_groups[0]["lr"] *= 0.5
            graphed_step(torch.ones(4, 8))
        return weight.detach()

    torch.testing.assert_close(run(graphed), run(lambda step: step))
