"""From a real run of a script to the patch of its step."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.adopt.rewrite import find_step, located
from launchscope.model import Schedule
from tests.runner.children import recorded

pytestmark = pytest.mark.child

SCRIPT = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 2)
target = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


class Trainer:
    def train(self, x):
        with torch.no_grad():
            goal = target(x)
        loss = self.loss(x, goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    def loss(self, x, goal):
        return (model(x) - goal).pow(2).mean()


trainer = Trainer()
for _ in range(60):
    last = trainer.train(torch.randn(3, 4))
    if _ % 7 == 0:
        with torch.no_grad():
            model(torch.randn(3, 4))
"""
SCHEDULE = Schedule(warmup=10, timing=0, trace=0, inspect=2, replay=0, verify=0)


def test_the_step_of_a_run_is_found_in_its_file(tmp_path: Path) -> None:
    step = recorded(tmp_path, SCRIPT, schedule=SCHEDULE).recording.step
    assert step is not None
    found = find_step([located(call, tmp_path) for call in step.calls], Path.read_bytes)
    assert found.source.file == tmp_path / "script.py"
    assert [statement.lineno for statement in found.marks] == [14, 15, 16, 17]
    assert found.repeats
