"""A watched script runs to its own end, and its windows say what its GPU waited for."""

from __future__ import annotations

import gzip
import json
import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from launchscope.analysis import build_profile
from launchscope.config import Settings
from launchscope.model import Target
from launchscope.parser import SAVED, read_recording, read_saved
from launchscope.report import render
from launchscope.runner.child.passes import watch as child
from launchscope.runner.parent.run_folder import RunFolder
from launchscope.workflows.progress import Progress
from launchscope.workflows.watch import WatchedRun
from tests.processes import WITHOUT_GPU, python, started
from tests.processes import launchscope as launched

pytestmark = pytest.mark.child

SCRIPT = """
import sys, time, torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(0)
try:
    for step in range(int(sys.argv[1])):
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8)).sum()
        loss.backward()
        optimizer.step()
        if step == 20:
            print("running", flush=True)
    if len(sys.argv) > 2:
        raise ValueError("no more data")
finally:
    print(f"step {step} {loss.item()}", flush=True)
"""


def test_without_a_gpu_the_script_runs_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    plain = python(tmp_path, "train.py", "60", environ=WITHOUT_GPU)
    done = launched(tmp_path, "watch", "train.py", "60", environ=WITHOUT_GPU)
    assert (done.returncode, done.stdout) == (3, plain.stdout)
    assert "nothing ran on a GPU" in done.stderr
    failed = launched(tmp_path, "watch", "train.py", "60", "fail", environ=WITHOUT_GPU)
    assert (failed.returncode, failed.stdout) == (1, plain.stdout)
    assert "ValueError: no more data" in failed.stderr


def test_ctrl_c_reaches_the_script_once(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    run = started(tmp_path, "-m", "launchscope", "watch", "train.py", "100000000")
    assert run.stdout is not None
    assert run.stdout.readline() == "running\n"
    run.send_signal(signal.SIGINT)
    stdout, stderr = run.communicate(timeout=60)
    assert (run.returncode, stdout.count("step ")) == (130, 1), stderr
    assert stderr.endswith("error: interrupted\n")


def recorded(run: Path, source: Path) -> None:
    """The files of a window, as the passes of the child write them."""
    recording = json.loads((source / "recording.json").read_text())
    for name in ("timing", "trace"):
        result = {**recording[name], "file": "trace.kineto.json"}
        (run / f"pass-{name}.json").write_text(json.dumps(result))
    with gzip.open(source / "trace.kineto.json.gz") as trace:
        (run / "trace.kineto.json").write_bytes(trace.read())
    (run / "environment.json").write_text(json.dumps(recording["environment"]))


def test_each_window_stands_for_the_iterations_after_it(
    tmp_path: Path, sample_workloads: Path
) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    run = WatchedRun(Target("script", "train.py"), 15.0, folder, Progress())
    lost_ms = []
    for name, counted in (("small_gpt", [10_000, 1e4, 1.0]), ("wide_mlp", [11_000, 2e4, 2.0])):
        source = sample_workloads / "recordings" / name
        recorded(folder.path, source)
        (folder.path / "pass-watch.json").write_text(json.dumps(counted))
        run.take()
        windows = replace(read_recording(source), replay=None, replayed_loop=None)
        lost_ms.append(build_profile(windows).metrics["launch_overhead_ms"].value or 0.0)
    watch = run.watch
    assert watch is not None
    assert [one.iterations for one in watch.windows] == [10_000, 1_000]
    assert watch.waited_s("launch") == pytest.approx(10 * lost_ms[0] + lost_ms[1])
    assert (watch.steps, watch.seconds, watch.cost_s) == (11_000, 2e4, 2.0)
    saved = tmp_path / "watch.json"
    saved.write_bytes(cast("bytes", render(watch, "json")))
    assert read_saved(saved, SAVED["watch"]) == watch


def test_windows_wait_until_they_cost_under_one_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1.0
    monkeypatch.setattr(child, "perf_counter", lambda: now)
    runner, cost_s, windows = SimpleNamespace(steps_done=10, queue=[]), 0.5, 0
    context: Any = SimpleNamespace(on_gpu=True, boundary=SimpleNamespace(warmup_steps=10))
    context.schedule = Settings().schedule
    watch = child.WatchPass(cast("Any", SimpleNamespace(runner=runner)), every_s=5.0)
    while now < 600:
        watch.start(context)
        over = False
        while not over:
            now, runner.steps_done, over = now + 0.01, runner.steps_done + 1, watch.end()
        steps, seconds, found_s = watch.finish(complete=True)
        assert found_s == pytest.approx(windows * cost_s, abs=0.02)
        assert steps + seconds == pytest.approx(101 * seconds, rel=1e-3)
        if len(runner.queue) > 1:
            windows += 1
            now, runner.steps_done = now + 0.36 + cost_s, runner.steps_done + 36
    assert windows == 12  # one soon, and then one in 50 seconds
