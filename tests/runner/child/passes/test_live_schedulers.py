"""Schedulers that are at work on a learning rate which a graph would freeze."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.analysis import build_profile
from launchscope.rules import advise
from tests.runner.children import recorded

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


# As Fabric and accelerate hand an optimizer back.
HELD = """
class Held(torch.optim.Optimizer):
    def __init__(self, optimizer): self._optimizer = optimizer
    def __getattr__(self, name): return getattr(self.__dict__["_optimizer"], name)
decay = torch.optim.lr_scheduler.StepLR(Held(opt), 1000)
"""


@pytest.mark.child
@pytest.mark.parametrize(
    ("release", "rate", "live", "line"),
    [
        ("", "decay.step()  # steps", True, "decay.step()  # steps"),
        (HELD, "decay.step()  # steps", True, "decay.step()  # steps"),
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
