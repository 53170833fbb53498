"""From a real run of a script to the patch of its step."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.adopt.rewrite import find_step, place_of
from launchscope.model import Schedule, StepBoundary
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


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> tuple[StepBoundary, Path]:
    folder = tmp_path_factory.mktemp("observed")
    step = recorded(folder, SCRIPT, schedule=SCHEDULE).recording.step
    assert step is not None
    return step, folder


def test_the_calls_of_a_step_are_known_with_their_callers(step: tuple[StepBoundary, Path]) -> None:
    calls = [
        (call.what, [(f.line, f.function) for f in call.frames if "script.py" in f.file])
        for call in step[0].calls
    ]
    train = "train"
    main = (26, "<module>")
    assert calls == [
        ("inference", [(13, train), main]),
        ("forward", [(21, "loss"), (14, train), main]),
        ("zero_grad", [(15, train), main]),
        ("backward", [(16, train), main]),
        ("step", [(17, train), main]),
    ]


def test_the_step_of_a_run_is_found_in_its_file(step: tuple[StepBoundary, Path]) -> None:
    boundary, folder = step
    found = find_step([place_of(call, folder) for call in boundary.calls], Path.read_bytes)
    assert found.source.file == folder / "script.py"
    assert [statement.lineno for statement in found.marks] == [14, 15, 16, 17]
    assert found.repeats
