"""How many steps the search takes before it is sure."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.model import Schedule
from launchscope.runner.parent.session import RunOptions
from tests.runner.children import recorded


@pytest.mark.child
def test_long_steps_leave_time_for_every_pass(tmp_path: Path) -> None:
    ran = recorded(
        tmp_path,
        "import time, torch\n"
        "net = torch.nn.Linear(4, 1)\n"
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "for step in range(40):\n"
        "    time.sleep(1.0 if step == 0 else 0.2)\n"
        "    optimizer.zero_grad()\n"
        "    net(torch.ones(2, 4)).sum().backward()\n"
        "    optimizer.step()\n",
        schedule=Schedule(warmup=4, inspect=20),
        options=RunOptions(timeout_s=24.0),
    )
    assert ran.recording.inspect is not None
    # A quarter of half the limit, for steps of a fifth of a second.
    assert 5 <= ran.recording.inspect.steps <= 15
    assert any("fewer steps than planned" in note for note in ran.recording.notes)
