"""The files of a run are there for as long as they are looked at, and no longer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launchscope.cli.state import new_console
from launchscope.config import load_settings
from launchscope.model import PointFailure, Target
from launchscope.workflows.axes import Axis, Combination, combinations
from launchscope.workflows.compare import measure
from launchscope.workflows.points import PointResult, Runner

SCRIPT = """
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(30):
    loss = model(torch.randn(2, 4)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_recording_stays_until_the_next_run_or_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    settings = load_settings({"warmup": 3, "inspect": 1})
    point = Combination({}, Target("script", str(script)), {})
    with Runner(settings, new_console()) as runner:
        first = runner.run(point).recording
        assert first is not None
        assert Path(first.directory).is_dir()
        second = runner.run(point).recording
        assert second is not None
        assert not Path(first.directory).exists()
        assert Path(second.directory).is_dir()
    assert not Path(second.directory).exists()


class Stopping(Runner):
    """Its first run fails, and its second is interrupted."""

    runs = 0

    def run(self, combination: Combination, **how: Any) -> PointResult:
        self.runs += 1
        why = "interrupted" if self.runs == 2 else "it crashed"
        return PointResult(None, None, PointFailure(why), interrupted=self.runs == 2)


def test_an_interrupted_comparison_says_which_points_it_lacks() -> None:
    settings, screen = load_settings(), new_console()
    target, axes = Target("script", "train.py"), (Axis("batch_size", ("8", "16", "32")),)
    points = combinations(axes, target)
    with Stopping(settings, screen) as runner:
        made = measure(runner, target, axes, points, (), False, settings, screen)
    assert made.interrupted
    assert [point.batch_size for point in made.comparison.points] == [8]
    assert made.comparison.notes == ("interrupted at point 2 of 3: batch_size 16",)
