"""The functions of the package do what the commands do."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity

import launchscope
from launchscope.cli import main
from launchscope.errors import ScriptError, UsageError
from tests.workflows.scripts import TRAINING


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (tmp_path / "train.py").write_text(TRAINING)
    return tmp_path


@pytest.mark.child
def test_profile_gives_the_profile_that_the_command_saves() -> None:
    result = launchscope.profile("train.py", ["8"], warmup=3, inspect=1)
    assert result.problem is None
    assert main(["profile", "-q", "--warmup", "3", "--inspect", "1", "-o", "p.json",
                 "train.py", "8"]) == 0  # fmt: skip
    saved = launchscope.load("p.json")
    assert result.profile.metrics == saved.metrics
    assert result.profile.verdict == saved.verdict
    assert result.profile.findings == saved.findings
    assert result.profile.target == saved.target
    assert list(result.kernels) == ["name", "count", "total_us", "where", "share_pct"]


@pytest.mark.child
def test_profile_raises_the_failure_of_the_script(folder: Path) -> None:
    (folder / "train.py").write_text("import torch\nraise ValueError('no data')")
    with pytest.raises(ScriptError, match="exit code 1 \\(ValueError\\)") as raised:
        launchscope.profile("train.py")
    assert (raised.value.exit_code, raised.value.out_of_memory) == (1, False)


@pytest.mark.child
def test_compare_measures_every_point() -> None:
    result = launchscope.compare(
        "train.py", ["{batch_size}"], batch_sizes=[4, 8], warmup=3, inspect=1
    )
    points = result.comparison.points
    assert [point.batch_size for point in points] == [4, 8]
    assert all(point.profile is not None for point in points)
    assert result.points["batch_size"].tolist() == [4, 8]


@pytest.mark.child
def test_check_decides_and_writes_baselines(folder: Path) -> None:
    first = launchscope.check(
        "train.py", baseline="bl", update_baseline=True, repeats=1, warmup=3, inspect=1
    )
    assert first.written == "bl/train.rehearsal.json"
    failed = launchscope.check(
        "train.py", limits={"device_ops_per_step": 1}, repeats=1, warmup=3, inspect=1
    )
    assert failed.outcome == "failed"
    assert main(["profile", "-q", "--warmup", "3", "--inspect", "1", "-o", "p.json",
                 "train.py"]) == 0  # fmt: skip
    assert launchscope.check("p.json", baseline="bl").outcome == "passed"
    assert main(["check", "-q", "--baseline", "bl", "-o", "c.json", "p.json"]) == 0
    assert json.loads((folder / "c.json").read_text())["outcome"] == "passed"


def test_a_wrong_setting_is_an_error() -> None:
    with pytest.raises(UsageError, match="--timing: expected a whole number, 0 or more, not -1"):
        launchscope.profile("train.py", timing=-1)
    with pytest.raises(UsageError, match="--timings: there is no such setting") as raised:
        launchscope.compare("train.py", batch_sizes=[1], timings=3)
    assert raised.value.hint == "did you mean timing?"
    with pytest.raises(UsageError, match="is for reading traces"):
        launchscope.profile("train.py", step_from="none")


def test_a_rank_of_several_is_told_which_command_measures_them_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    several = "measures one process, and this is one of several ranks"
    for function in (launchscope.profile, launchscope.compare):
        with pytest.raises(UsageError, match=several):
            function("train.py")
    with pytest.raises(UsageError, match=several):
        launchscope.check("train.py", limits={"launches_per_step": 9})


class Profiler:
    """As that of torch, with a trace that was recorded on a GPU."""

    def __init__(self, trace: Path):
        self._trace = trace

    def export_chrome_trace(self, path: str) -> None:
        Path(path).write_bytes(gzip.decompress(self._trace.read_bytes()))


def test_a_profiler_of_torch_hands_its_trace_to_a_report(
    sample_workloads: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = sample_workloads / "recordings/small_mlp/trace.kineto.json.gz"
    launchscope.on_trace_ready("report.json")(Profiler(trace))
    found = launchscope.load("report.json")
    assert found.mode == "trace"
    assert found.value("launches_per_step")
    assert "launches" in capsys.readouterr().err


def test_a_trace_without_a_report_warns_and_ends_no_training(folder: Path) -> None:
    ready = launchscope.on_trace_ready(folder / "report.json")
    no_work = "launchscope reports no trace: the trace holds no device work$"
    with (
        pytest.warns(UserWarning, match=no_work),
        torch.profiler.profile(on_trace_ready=ready, activities=[ProfilerActivity.CPU]) as ended,
    ):
        torch.ones(3).sum()
    with pytest.warns(UserWarning, match="launchscope reports no trace: Trace is already saved"):
        ready(ended)
    assert not (folder / "report.json").exists()


@pytest.mark.parametrize("path", ["r.htm", "no/r.html", "r.patch", "r.perfetto.json"])
def test_a_report_of_a_trace_that_cannot_be_written_is_refused_before_the_training(
    path: str,
) -> None:
    with pytest.raises(UsageError):
        launchscope.on_trace_ready(path)
