"""The files of a run exist for as long as they are needed, and no longer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launchscope.config import load_settings
from launchscope.errors import MeasureError
from launchscope.model import Target
from launchscope.workflows import compare
from launchscope.workflows.batch_sizes import PlannedPoint
from launchscope.workflows.profile import ScriptRun, ScriptRunner
from launchscope.workflows.progress import Progress
from tests.workflows.scripts import TRAINING


@pytest.mark.child
def test_a_recording_stays_until_the_next_run_or_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    target = Target("script", str(script))
    with ScriptRunner(load_settings({"warmup": 3, "inspect": 1}), Progress()) as runner:
        first = runner.run(target).recording
        assert first is not None
        assert Path(first.directory).is_dir()
        second = runner.run(target).recording
        assert second is not None
        assert not Path(first.directory).exists()
        assert Path(second.directory).is_dir()
    assert not Path(second.directory).exists()


def test_an_interrupted_comparison_says_which_points_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = iter(
        [
            ScriptRun(None, None, MeasureError("it crashed")),
            ScriptRun(None, None, MeasureError("interrupted", exit_code=143), interrupted=True),
        ]
    )

    def run(runner: ScriptRunner, target: Target, **how: Any) -> ScriptRun:
        return next(runs)

    monkeypatch.setattr(ScriptRunner, "run", run)
    target = Target("script", "train.py")
    points = tuple(PlannedPoint(target, size) for size in (8, 16, 32))
    plan = compare.ComparePlan(target, load_settings(), points)
    result = compare.compare(plan, Progress())
    assert result.problem is not None
    assert result.problem.exit_code == 143
    assert [point.batch_size for point in result.comparison.points] == [8]
    assert result.comparison.notes == ("interrupted at point 2 of 3: batch size 16",)
