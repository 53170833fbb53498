"""One smaller batch, such as the last of an epoch, makes no other shape."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.model import Schedule
from tests.runner.children import recorded

TRAINING = """
import torch
net = torch.nn.Linear(6, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(40):
    rows = ROWS
    opt.zero_grad()
    net(torch.randn(rows, 6)).pow(2).mean().backward()
    opt.step()
"""


@pytest.mark.child
@pytest.mark.parametrize(
    ("rows", "signatures", "notes"),
    [("2 if step % 8 == 6 else 8", 1, True), ("8 - step % 3", 3, False), ("8", 1, False)],
)
def test_one_smaller_batch_is_not_inspected(
    tmp_path: Path, rows: str, signatures: int, notes: bool
) -> None:
    schedule = Schedule(warmup=4, inspect=6)
    ran = recorded(tmp_path, TRAINING.replace("ROWS", rows), schedule=schedule)
    inspect = ran.recording.inspect
    assert inspect is not None
    assert inspect.steps == len(inspect.between) == 6
    assert len(set(inspect.signatures)) == signatures
    assert any("smaller batch" in note for note in inspect.notes) is notes
