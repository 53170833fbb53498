"""Schedulers that are at work on a learning rate which a graph would freeze."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from launchscope.analysis import build_profile
from launchscope.rules import advise
from launchscope.runner.child.ops.step_ops import weak_storage
from launchscope.runner.child.passes import Context
from launchscope.runner.child.passes.inspect import known_storages, live_schedulers
from tests.runner.children import recorded
from tests.runner.steps import context_of


def trained_with(folder: Path, lr: Any, on_gpu: bool = True) -> tuple[Context, Any]:
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    return replace(context_of(folder, model, optimizer), on_gpu=on_gpu), optimizer


class Scheduler:
    """As libraries write their own."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer


class CosineScheduler(Scheduler):
    """Of such a library."""


def test_a_scheduler_that_sets_a_float_is_live(tmp_path: Path) -> None:
    context, optimizer = trained_with(tmp_path, 0.1)
    assert live_schedulers(context) == []
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1000)
    assert live_schedulers(context) == [scheduler]


def test_a_learning_rate_in_a_host_tensor_is_frozen_like_a_float(tmp_path: Path) -> None:
    context, optimizer = trained_with(tmp_path, torch.tensor(0.1))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1000)
    assert live_schedulers(context) == [scheduler]
    assert live_schedulers(replace(context, on_gpu=False)) == []  # a rehearsal: it may be one


@pytest.mark.parametrize("kind", [Scheduler, CosineScheduler])
def test_a_scheduler_of_another_library_is_live(tmp_path: Path, kind: type) -> None:
    context, optimizer = trained_with(tmp_path, 0.1)
    scheduler = kind(optimizer)
    other = kind(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1))
    assert live_schedulers(context) == [scheduler]
    assert other.optimizer is not optimizer


def test_a_scheduler_of_what_holds_the_optimizer_is_live(tmp_path: Path) -> None:
    class Held(torch.optim.Optimizer):  # as Fabric and accelerate hand it back
        def __init__(self, optimizer: Any) -> None:
            self._optimizer = optimizer

        def __getattr__(self, name: str) -> Any:
            return getattr(self.__dict__["_optimizer"], name)

    context, optimizer = trained_with(tmp_path, 0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(Held(optimizer), 1000)
    assert live_schedulers(context) == [scheduler]


def test_what_an_optimizer_keeps_in_lists_is_its_state(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3)).pow(2).mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    optimizer.step(closure)
    (state,) = optimizer.state.values()
    known = known_storages(context_of(tmp_path, model, optimizer))
    assert state["old_dirs"]
    assert all(weak_storage(one) in known for one in state["old_dirs"])


@pytest.mark.child
def test_the_line_that_steps_the_scheduler_is_reported(tmp_path: Path) -> None:
    ran = recorded(
        tmp_path,
        "import torch\n"
        "net = torch.nn.Linear(4, 1)\n"
        "opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "decay = torch.optim.lr_scheduler.StepLR(opt, 1000)\n"
        "for step in range(20):\n"
        "    opt.zero_grad()\n"
        "    net(torch.ones(2, 4)).sum().backward()\n"
        "    opt.step()\n"
        "    decay.step()  # here\n",
    )
    inspect = ran.recording.inspect
    assert inspect is not None
    assert inspect.scheduler_live
    assert ran.line(inspect.scheduler_where).endswith("# here")


@pytest.mark.child
def test_a_rate_that_the_loop_sets_counts_although_it_has_not_changed(tmp_path: Path) -> None:
    ran = recorded(
        tmp_path,
        "import torch\n"
        "net = torch.nn.Linear(4, 1)\n"
        "opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "def adjust(epoch):\n"
        "    for group in opt.param_groups:\n"
        "        group['lr'] = 0.1 * 0.5 ** (epoch // 30)  # here\n"
        "for epoch in range(4):\n"
        "    adjust(epoch)\n"
        "    for step in range(10):\n"
        "        opt.zero_grad()\n"
        "        net(torch.ones(2, 4)).sum().backward()\n"
        "        opt.step()\n",
    )
    inspect = ran.recording.inspect
    assert inspect is not None
    assert inspect.scheduler_live
    assert ran.line(inspect.scheduler_where).endswith("# here")
    profile = advise(build_profile(ran.recording))
    (finding,) = (finding for finding in profile.findings if finding.code == "LS035")
    assert finding.where == inspect.scheduler_where
    assert "fill_" in finding.advice
