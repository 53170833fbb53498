"""A script with its recipe pasted in does what it did before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.pasted import pasted

HEAD = """\
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = list(torch.randn(8, 5, 4))
inputs = data
"""
LOOP = """\
for x in data:
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    probe()
"""


def assert_same(eager: dict[str, Any], graphed: dict[str, Any], *names: str) -> None:
    for name in names:
        torch.testing.assert_close(graphed[name], eager[name])
    for ours, theirs in zip(
        graphed["model"].parameters(), eager["model"].parameters(), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_a_plain_training_loop_trains_the_same(tmp_path: Path) -> None:
    eager, graphed, _ = pasted(HEAD, LOOP, tmp_path)
    assert_same(eager, graphed, "loss")


def test_the_stand_in_freezes_what_a_graph_freezes(tmp_path: Path) -> None:
    slower = "optimizer.param_groups[0]['lr'] *= 0.5"
    loop = LOOP.replace("probe()", f"probe()\n    {slower}")
    eager, graphed, _ = pasted(HEAD, loop, tmp_path, rest=slower)
    assert eager["optimizer"].param_groups[0]["lr"] == graphed["optimizer"].param_groups[0]["lr"]
    with pytest.raises(AssertionError):
        assert_same(eager, graphed)
