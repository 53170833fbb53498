"""Watching a whole run on a GPU: what it says, and that the script does not notice."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from launchscope.model import Profile, Watch
from launchscope.parser import read_saved
from tests import processes
from tests.gpu.conftest import loop

pytestmark = pytest.mark.gpu


def test_the_share_is_that_of_the_profile(tmp_path: Path, sample_workloads: Path) -> None:
    script = (str(sample_workloads / "small_mlp.py"), "--steps", "8000")
    plain = processes.python(tmp_path, *script)
    done = processes.launchscope(tmp_path, "watch", "--every", "1", "-o", "watch.json", *script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(plain.stdout)
    processes.launchscope(tmp_path, "profile", "-q", "-o", "profile.json", *script)
    watch = read_saved(tmp_path / "watch.json", Watch)
    profile = read_saved(tmp_path / "profile.json", Profile).metrics["launch_overhead_pct"].value
    assert profile is not None
    assert watch.share_pct() == pytest.approx(profile, abs=10), done.stdout
    assert watch.steps == 8000 - 10


def test_ctrl_c_keeps_the_report(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(loop(steps=100_000_000))
    words = ("-m", "launchscope", "watch", "--every", "1", "train.py")
    run = processes.started(tmp_path, *words, environ=processes.SAME)
    assert run.stderr is not None
    while "the GPU waited" not in (line := run.stderr.readline()):
        assert line, "the run ended by itself"
    run.send_signal(signal.SIGINT)
    stdout, stderr = run.communicate(timeout=60)
    assert run.returncode == 130, stderr
    assert "WAITS FOR LAUNCHES" in stdout


def test_a_script_with_a_profiler_of_its_own_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(loop("profiler = torch.profiler.profile()", steps=20_000))
    done = processes.launchscope(tmp_path, "watch", "--every", "1", "train.py")
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert "profiler of its own" in done.stderr
