"""How a step calls its models is seen as torch.cuda.make_graphed_callables would see it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from launchscope.model import ModelCall
from launchscope.runner.follow.hooks import Hooks
from launchscope.runner.follow.modelcalls import ModelCalls
from tests.runner.children import recorded
from tests.runner.steps import Silence

PLAIN = ModelCall("Net", times=1, arguments=1)
X = torch.ones(2, 3)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)

    def forward(self, x: Any, scale: Any = 1.0, give: Any = None) -> Any:
        y = self.inner(x) * (1.0 if scale is None else scale)
        return y if give is None else give(y)


def seen(net: torch.nn.Module, *args: Any, **kwargs: Any) -> ModelCall:
    """One call, in a step of its own, with launchscope's hooks on it as in a run."""
    hooks = Hooks(torch, Silence())
    hooks.install()
    hooks.narrow(frozenset([hooks.module_key(net)]))
    calls = ModelCalls(torch, hooks)
    calls.follow([net])
    try:
        net(*args, **kwargs)
    finally:
        calls.leave()
        hooks.remove()
    return calls.seen()[0]


def hooked(name: str, of: str = "") -> Net:
    net = Net()
    getattr(net.get_submodule(of), name)(lambda *_: None)
    return net


def test_a_call_with_tensors_by_position_is_plain() -> None:
    assert seen(Net(), X) == PLAIN
    assert seen(Net(), X, X) == replace(PLAIN, arguments=2)


@pytest.mark.parametrize("name", ["register_forward_hook", "register_forward_pre_hook"])
def test_hooks_of_the_script_are_told_from_launchscopes(name: str) -> None:
    assert seen(hooked(name), X) == replace(PLAIN, hooks=True)
    assert seen(hooked(name, "inner"), X) == replace(PLAIN, inner_hooks=True)


def test_hooks_of_the_backward_are_seen() -> None:
    assert seen(hooked("register_full_backward_hook"), X).hooks


def test_what_is_no_tensor_is_told_by_its_class() -> None:
    assert seen(Net(), X, 2.0).others == ("float",)
    assert seen(Net(), X, None).others == ("NoneType",)
    assert seen(Net(), x=X).keywords == ("x",)
    assert seen(Net(), X, 1.0, lambda y: {"y": (y, [y])}).outputs == ()
    assert seen(Net(), X, 1.0, lambda y: (y, None)).outputs == ("NoneType",)


def test_buffers_and_autocast_are_seen() -> None:
    net = Net()
    net.register_buffer("scale", torch.ones((), requires_grad=True))
    assert seen(net, X).trained_buffers
    assert not seen(Net(), X).autocast


@pytest.mark.parametrize("made", [hooked("register_forward_hook"), Net()])
def test_torch_refuses_what_is_told_to_be_refused(made: Net) -> None:
    call = seen(made, X, 2.0)
    assert call.hooks or call.others
    samples: Any = (X, 2.0)
    with pytest.raises(AssertionError, match=r"hooks registered|only Tensors"):
        torch.cuda.make_graphed_callables(made, samples)


def test_nothing_of_it_stays_with_the_module() -> None:
    net = Net()
    seen(net, X)
    assert not net._forward_hooks
    assert not net._forward_pre_hooks


def test_a_run_records_the_calls_of_a_step(tmp_path: Path) -> None:
    source = """
import torch
class Net(torch.nn.Linear):
    def forward(self, x, y=None):
        return super().forward(x).sum() * y
net, loss_of = Net(4, 2), torch.nn.MSELoss()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(20):
    opt.zero_grad()
    loss = loss_of(net(torch.randn(8, 4), y=torch.ones(())), torch.zeros(()))
    (loss + net(torch.randn(8, 4), y=torch.ones(()))).backward()
    opt.step()
"""
    inspected = recorded(tmp_path, source).recording.inspect
    assert inspected is not None
    assert inspected.calls == (ModelCall("Net", times=2, arguments=1, keywords=("y",)),)
