"""A watched script runs to its own end, and its windows say what its GPU waited for."""

from __future__ import annotations

import gzip
import json
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from launchscope.model import Environment, Target, Watch
from launchscope.runner.child.passes import watch as child
from launchscope.runner.parent.child_watch import ProgressEvent
from launchscope.runner.parent.run_folder import RunFolder
from launchscope.workflows.progress import Progress
from launchscope.workflows.watch import WatchedRun
from tests.processes import WITHOUT_GPU, launchscope, python, started
from tests.workflows.scripts import TRAINING

pytestmark = pytest.mark.child
END = "print(loss.shape)\n"


@pytest.mark.parametrize(("end", "code"), [(END, 3), (f"{END}raise ValueError('no data')", 1)])
def test_without_a_gpu_the_script_runs_to_its_end(tmp_path: Path, end: str, code: int) -> None:
    (tmp_path / "train.py").write_text(TRAINING + end)
    plain = python(tmp_path, "train.py", environ=WITHOUT_GPU)
    done = launchscope(tmp_path, "watch", "train.py", environ=WITHOUT_GPU)
    assert (done.returncode, done.stdout) == (code, plain.stdout)
    assert "launchscope: watching, failed: nothing ran on a GPU\n" in done.stderr
    assert plain.stderr in done.stderr


def test_ctrl_c_reaches_the_script_once(tmp_path: Path) -> None:
    endless = "try:\n  print(1, flush=True)\n  while True: pass\nfinally: print(2)"
    (tmp_path / "train.py").write_text(TRAINING + endless)
    run = started(tmp_path, "-m", "launchscope", "watch", "train.py")
    assert run.stdout is not None and run.stdout.readline() == "1\n"  # noqa: PT018
    run.send_signal(signal.SIGINT)
    stdout, stderr = run.communicate(timeout=60)
    assert (run.returncode, stdout) == (130, "2\n"), stderr
    assert stderr.endswith("error: interrupted\n")


def test_each_window_stands_for_the_iterations_after_it(
    tmp_path: Path, sample_workloads: Path
) -> None:
    nothing = Watch(Target("script", "train.py"), Environment(), 15.0)
    run = WatchedRun(RunFolder(tmp_path / "run"), Progress(), nothing)
    run.folder.path.mkdir()
    for name, counted in (("small_gpt", [1000, 100.0, 0.5]), ("wide_mlp", [2000, 100.1, 1.0])):
        source = sample_workloads / "recordings" / name
        recording = json.loads((source / "recording.json").read_text())
        recording["trace"]["file"] = "trace.kineto.json"
        results = {"timing": recording["timing"], "trace": recording["trace"], "watch": counted}
        for kind, result in results.items():
            (run.folder.path / f"pass-{kind}.json").write_text(json.dumps(result))
        trace = gzip.decompress((source / "trace.kineto.json.gz").read_bytes())
        (run.folder.path / "trace.kineto.json").write_bytes(trace)
        run.take_window()
        run.take_steps(ProgressEvent("pass_end", "watch"))
    gpt, mlp = run.watch.windows
    assert gpt.iterations == 1000
    assert mlp.iterations == pytest.approx(100 / mlp.iteration_ms)
    assert 50 < 100 * gpt.launch_overhead_ms / gpt.iteration_ms < 90
    assert run.watch.share_pct() == pytest.approx(gpt.launch_overhead_ms, rel=0.01)


def test_windows_wait_until_they_take_under_half_a_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    now, cost_s, windows = 1.0, 0.5, 0
    monkeypatch.setattr(child, "perf_counter", lambda: now)
    runner: Any = SimpleNamespace(steps_done=10, queue=[])
    context: Any = SimpleNamespace(on_gpu=True, boundary=SimpleNamespace(warmup_steps=10))
    watch = child.WatchPass(cast("Any", SimpleNamespace(runner=runner)), every_s=5.0)
    while now < 600:
        watch.start(context)
        over = False
        while not over:
            now, runner.steps_done, over = now + 0.01, runner.steps_done + 1, watch.end()
        assert watch.finish(complete=True)[2] == pytest.approx(windows * cost_s, abs=0.02)
        if len(runner.queue) > 1:
            windows += 1
            now, runner.steps_done = now + 0.36 + cost_s, runner.steps_done + 36
    assert windows == 6  # one soon, and then one in 100 seconds
