from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from launchscope.report import render
from tests.benchmarks import bench
from tests.benchmarks.compare import RUNS, file_of
from tests.report import comparisons


def test_every_run_names_a_sample_that_is_there() -> None:
    samples = {path.stem for path in (bench.ROOT / "sample_workloads").glob("*.py")}
    assert {run.sample for run in RUNS} <= samples
    assert len({run.name for run in RUNS}) == len(RUNS)


@pytest.mark.child
def test_the_summary_holds_every_comparison_that_was_made(tmp_path: Path) -> None:
    made = {
        "convnet": comparisons.comparison(),
        "strategies_small_mlp": comparisons.strategies(),
    }
    for run in RUNS:
        if run.name in made:
            content = render(made[run.name], "json")
            assert isinstance(content, bytes)
            file_of(run, tmp_path).write_bytes(content)
    command = [sys.executable, "-m", "tests.benchmarks.compare", "--summary-only"]
    subprocess.run(
        [*command, "--results", str(tmp_path)],
        check=True,
        capture_output=True,
        cwd=bench.ROOT,
        env=bench.child_environment(),
    )
    text = (tmp_path / "compare.md").read_text()
    assert text.startswith("# Comparisons of the samples")
    assert "launchscope compare --batch-sizes 16,64,256,512,1024" in text
    assert text.count("\n## COMPARISON: ") == 2
    assert "at a batch size of about 113" in text
