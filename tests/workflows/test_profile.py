"""The files of a run exist for as long as they are needed, and no longer."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

import pytest

from launchscope.cli.console import Console
from launchscope.config import load_settings
from launchscope.errors import MeasureError
from launchscope.model import Schedule, Target
from launchscope.parser import read_recording
from launchscope.runner.parent.child_watch import ProgressEvent
from launchscope.runner.parent.session import RunOptions, _Session
from launchscope.runner.protocol.folder import ChildFolder
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


@pytest.mark.child  # git
def test_a_first_verdict_is_shown_while_the_loop_of_the_script_is_measured(tmp_path: Path) -> None:
    sample = Path(__file__).parents[2] / "sample_workloads/recordings/small_mlp"
    recording = read_recording(sample)
    run = ChildFolder(tmp_path / "run-1")
    run.path.mkdir()
    run.write("step", recording.step)
    run.write("environment", recording.environment)
    for name in ("timing", "trace", "inspect", "replay", "replay_trace", "verify"):
        run.write(f"pass-{name}", getattr(recording, name))
    for file in sample.glob("*.gz"):
        shutil.copy(file, tmp_path)
    console = Console(io.StringIO(), io.StringIO(), {})
    runner = ScriptRunner(load_settings(), console)
    runner._folder = tmp_path
    target = Target("script", "train.py")
    session = _Session(target, Schedule(), RunOptions(), tmp_path, runner._on_event)
    session.collected.runs = 1
    for done in (0, 5):
        session._on_event(ProgressEvent("pass", "replayed_loop", "running", done, 66))
    assert console.stdout.getvalue() == ""  # type: ignore[attr-defined]
    assert console.stderr.getvalue() == (  # type: ignore[attr-defined]
        "launchscope: so far: ADOPT, 67 % of the iteration (subtracted); "
        "measuring the script's own loop\n"
    )
    assert not session.collected.results
