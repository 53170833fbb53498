"""A script that swallows whatever would stop it is ended all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runner.children import launchscope

pytestmark = pytest.mark.child

SOURCE = """
import torch
net = torch.nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(200):
    try:
        opt.zero_grad()
        net(torch.randn(8, 4)).sum().backward()
        opt.step()
    except BaseException: pass
    print(step)
"""


def test_a_stop_that_is_swallowed_each_time_ends_the_process_at_once(tmp_path: Path) -> None:
    said = launchscope(tmp_path, SOURCE)
    assert said.code == 0, said.err
    assert "Traceback" not in said.err
    assert "\n10\n" in said.out
    assert "\n199\n" not in said.out
