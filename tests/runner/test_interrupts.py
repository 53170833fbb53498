"""A KeyboardInterrupt passes through the hooks."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.model import Schedule
from tests.runner.children import recorded

pytestmark = pytest.mark.child


def test_a_forward_that_an_interrupt_has_left_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = """
    import torch
    class Net(torch.nn.Module):
        interrupted = False
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 2)
        def forward(self, x):
            if self.interrupted:
                raise KeyboardInterrupt
            return self.inner(x)
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(40):
        net.interrupted = step in (2, 14)
        try:
            opt.zero_grad()
            net(torch.randn(8, 4)).sum().backward()
            opt.step()
        except KeyboardInterrupt:
            pass
    """
    result = recorded(tmp_path, source, schedule=Schedule(full=True))
    assert result.recording.step is not None, result.events
    assert result.recording.step.names == ("Net", "backward", "SGD")
    assert result.recording.inspect is not None
