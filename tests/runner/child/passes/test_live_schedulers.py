"""Schedulers that are at work on a learning rate which a graph would freeze."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from launchscope.analysis import build_profile
from launchscope.rules import advise
from launchscope.runner.child.passes import Context
from launchscope.runner.child.passes.inspect import live_schedulers
from tests.runner.children import recorded
from tests.runner.steps import context_of


def trained_with(folder: Path, lr: Any, on_gpu: bool = True) -> tuple[Context, Any]:
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    return replace(context_of(folder, model, optimizer), on_gpu=on_gpu), optimizer


class Held(torch.optim.Optimizer):
    """As Fabric and accelerate hand an optimizer back."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_optimizer"], name)


def steps_rarely(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.StepLR(optimizer, 1000)


@pytest.mark.parametrize("make", [steps_rarely, lambda optimizer: steps_rarely(Held(optimizer))])
def test_a_scheduler_that_sets_a_float_is_live(tmp_path: Path, make: Any) -> None:
    context, optimizer = trained_with(tmp_path, 0.1)
    assert live_schedulers(context) == []
    scheduler = make(optimizer)
    other = make(torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1))
    assert live_schedulers(context) == [scheduler]
    del other


SCRIPT = """
import torch
net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
decay = torch.optim.lr_scheduler.StepLR(opt, 1000)
RELEASE
for step in range(40):
    opt.zero_grad()
    net(torch.ones(2, 4)).sum().backward()
    opt.step()
    RATE
"""


@pytest.mark.child
@pytest.mark.parametrize(
    ("release", "rate", "live", "line"),
    [
        ("", "decay.step()  # steps", True, "decay.step()  # steps"),
        ("del decay", "opt.param_groups[0]['lr'] *= 0.9", True, None),
        ("del decay", "pass", False, None),
    ],
)
def test_a_rate_that_a_scheduler_or_the_script_sets_is_reported(
    tmp_path: Path, release: str, rate: str, live: bool, line: str | None
) -> None:
    source = SCRIPT.replace("RELEASE", release).replace("RATE", rate)
    ran = recorded(tmp_path, source)
    inspect = ran.recording.inspect
    assert inspect is not None
    assert inspect.scheduler_live is live
    if line is not None:
        assert ran.line(inspect.scheduler_where) == line
    findings = [f for f in advise(build_profile(ran.recording)).findings if f.code == "LS035"]
    assert len(findings) == live
