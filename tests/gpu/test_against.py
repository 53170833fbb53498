"""check --against on a GPU: pairs, clocks, and a slowdown that is caught."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.against_campaign import Case, cases
from tests.regressions import SCRIPT
from tests.workflows.repositories import git, repository, write

pytestmark = pytest.mark.gpu

QUICK = ("--warmup", "5", "--timing", "30", "--trace", "3", "--inspect", "2", "--pairs", "8")


def check(top: Path, *options: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "launchscope", "check", "-q", *QUICK, *options, "--against", "HEAD",
         "-o", "../out.json", "train.py"],
        cwd=top, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    assert git(top, "worktree", "list").count("\n") == 0
    return done.returncode, json.loads((top / "../out.json").read_text())


def change(report: dict[str, Any], metric: str) -> dict[str, Any]:
    return next(c for c in report["paired"]["changes"] if c["metric"] == metric)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    return repository(tmp_path / "project", {"train.py": SCRIPT})


def test_unchanged_code_does_not_fail_and_the_clock_is_known(top: Path) -> None:
    code, report = check(top)
    assert code == 0
    launches, iteration = change(report, "launches_per_step"), change(report, "iteration_ms")
    assert launches["exact"]
    assert launches["change"] == 0
    assert iteration["low"] <= iteration["change"] <= iteration["high"]
    assert len(iteration["pairs"]) + len(report["paired"]["disturbed"]) >= 8
    if os.path.exists("/usr/bin/nvidia-smi"):
        assert all(clock > 100 for pair in report["paired"]["clocks_mhz"] for clock in pair)


def test_a_slowdown_by_half_and_a_launch_more_fail(top: Path) -> None:
    _, unchanged = check(top, "--pairs", "2")
    base_ms = change(unchanged, "iteration_ms")["base"]
    write(top, {"train.py": Case("half", "plain", slower_pct=50).source(base_ms)})
    code, report = check(top)
    assert code == 1
    assert [d["metric"] for d in report["limits"] if d["outcome"] == "failed"] == ["iteration_ms"]
    assert change(report, "iteration_ms")["low"] > 5
    extra = next(case for case in cases() if case.name == "exact-extra-elementwise-op")
    write(top, {"train.py": extra.source(0)})
    code, report = check(top, "--pairs", "1")
    assert code == 1
    assert change(report, "launches_per_step")["change"] > 0
