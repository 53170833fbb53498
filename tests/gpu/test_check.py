"""The gate on a GPU: exact launches, regressions caught and named, launch counts in tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.processes import Done, launchscope, python
from tests.regressions import BETWEEN, REGRESSIONS, SCRIPT, UNCHANGED, Regression, baselines_of

pytestmark = pytest.mark.gpu

QUICK = ("--warmup", "5", "--timing", "20", "--trace", "3", "--inspect", "2")
COMPILED = SCRIPT.replace("optimizer = ", "model = torch.compile(model)\noptimizer = ", 1)


def check(folder: Path, *arguments: str) -> Done:
    return launchscope(folder, "check", *QUICK, "-o", "out.json", *arguments)


def report(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "out.json").read_text())  # type: ignore[no-any-return]


def failed(folder: Path) -> list[str]:
    return [d["metric"] for d in report(folder)["limits"] if d["outcome"] == "failed"]


@pytest.fixture(scope="module")
def baselines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return baselines_of(tmp_path_factory.mktemp("unchanged"), check)


def test_unchanged_code_passes_with_an_exact_count(baselines: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = check(tmp_path, "--baseline", str(baselines), "train.py")
    assert done.returncode == 0, done.stdout + done.stderr
    limits = {d["metric"]: d for d in report(tmp_path)["limits"]}
    assert {"launches_per_step", "syncs_per_step", "memcpys_per_step", "blockers"} <= set(limits)
    assert limits["launches_per_step"]["exact"]
    assert limits["launches_per_step"]["value"] == limits["launches_per_step"]["baseline"] > 0


def changes_of(regression: Regression, baselines: Path, folder: Path) -> list[dict[str, Any]]:
    """What a check reports as changed that has to fail because of the regression."""
    (folder / "train.py").write_text(regression.script)
    done = check(folder, "--baseline", str(baselines), "--repeats", "1", "train.py")
    assert done.returncode == 1, done.stdout + done.stderr
    assert regression.gpu_metric in failed(folder)
    changes: list[dict[str, Any]] = report(folder)["changes"]
    return changes


@pytest.mark.parametrize("regression", REGRESSIONS.values(), ids=REGRESSIONS)
def test_a_regression_fails_and_is_named_with_its_line(
    regression: Regression, baselines: Path, tmp_path: Path
) -> None:
    changes = changes_of(regression, baselines, tmp_path)
    appeared = {c["name"]: c["where"] for c in changes if c["after"] > c["before"]}
    for name in (*regression.names, *regression.gpu_names):
        assert any(name in found for found in appeared), (name, sorted(appeared))
    line = {"file": "train.py", "line": regression.line_number}
    assert any(line in where for where in appeared.values()), appeared


@pytest.mark.parametrize("regression", BETWEEN.values(), ids=BETWEEN)
def test_a_regression_between_steps_fails_and_its_line_is_named(
    regression: Regression, baselines: Path, tmp_path: Path
) -> None:
    line = {"file": "train.py", "line": regression.line_number}
    changes = [c for c in changes_of(regression, baselines, tmp_path) if c["between"]]
    assert any(line in c["where"] for c in changes), changes


@pytest.mark.parametrize("name", UNCHANGED)
def test_scripts_that_load_log_and_evaluate_pass_unchanged(name: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(UNCHANGED[name])
    place = ("--baseline", str(tmp_path / "baselines"))
    made = check(tmp_path, *place, "--update-baseline", "--repeats", "2", "train.py")
    assert made.returncode == 0, made.stdout + made.stderr
    for _ in range(3):
        done = check(tmp_path, *place, "train.py")
        assert done.returncode == 0, done.stdout + done.stderr
        limits = {d["metric"]: d for d in report(tmp_path)["limits"]}
        assert limits["between_copies"]["value"] >= 1  # a batch


def test_a_compiled_model_that_is_no_longer_compiled_fails(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    (tmp_path / "train.py").write_text(COMPILED)
    place = str(tmp_path / "baselines")
    made = check(tmp_path, "--baseline", place, "--update-baseline", "--repeats", "1", "train.py")
    assert made.returncode == 0, made.stdout + made.stderr
    (tmp_path / "train.py").write_text(SCRIPT)
    done = check(tmp_path, "--baseline", place, "--repeats", "1", "train.py")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "launches_per_step" in failed(tmp_path)
    gone = [c["name"] for c in report(tmp_path)["changes"] if c["after"] < c["before"]]
    assert any("triton" in name for name in gone)


def test_launches_are_counted_in_a_test(tmp_path: Path) -> None:
    (tmp_path / "test_project.py").write_text(
        """
import pytest, torch

x = torch.zeros(1000, device="cuda")
host = torch.zeros(1000).pin_memory()

def adds(n):
    for _ in range(n):
        x.add_(1)

def test_exact(launches):
    count = launches(adds, 50)
    assert count == launches(adds, 50) == 50
    assert repr(count) == "50 kernel launches"
    assert launches(adds, 0) == 0
    assert launches(lambda: x.copy_(host, non_blocking=True)) == 0

def test_over(launches):
    assert launches(adds, 5) <= 4
"""
    )
    words = ("-m", "pytest", "-p", "launchscope.pytest_plugin", "--strict-markers")
    done = python(tmp_path, *words, environ={"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "5 kernel launches <= 4" in done.stdout
    assert "elementwise" in done.stdout
