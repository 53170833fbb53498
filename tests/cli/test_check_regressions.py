"""Real scripts, measured in real processes without a GPU: what got worse is caught and named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import processes
from tests.regressions import BETWEEN, REGRESSIONS, SCRIPT, Regression, all_at_once, baselines_of

pytestmark = pytest.mark.child


def check(folder: Path, *words: str) -> processes.Done:
    command = ("check", "--warmup", "5", "--inspect", "3", *words)
    return processes.launchscope(folder, *command, environ=processes.WITHOUT_GPU)


@pytest.fixture(scope="module")
def baselines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return baselines_of(tmp_path_factory.mktemp("unchanged"), check)


@pytest.mark.parametrize("regression", REGRESSIONS.values(), ids=REGRESSIONS)
def test_a_regression_fails_and_shows_its_line(
    regression: Regression, baselines: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(regression.script)
    done = check(
        tmp_path, "--baseline", str(baselines), "--repeats", "1", "-o", "out.json", "train.py"
    )
    assert done.returncode == 1, done.stdout + done.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    assert regression.metric in [d["metric"] for d in report["limits"] if d["outcome"] == "failed"]
    appeared = {c["name"]: c["where"] for c in report["changes"] if c["after"] > c["before"]}
    assert set(regression.names) <= set(appeared)
    line = regression.line_number
    assert {"file": "train.py", "line": line} in appeared[regression.names[0]]
    assert f"train.py:{line}" in done.stdout
    assert "launchscope: finding the step" in done.stderr


def test_what_was_added_between_steps_fails_and_every_line_is_named(
    baselines: Path, tmp_path: Path
) -> None:
    script = all_at_once()
    (tmp_path / "train.py").write_text(script)
    done = check(
        tmp_path, "--baseline", str(baselines), "--repeats", "1", "-o", "out.json", "train.py"
    )
    assert done.returncode == 1, done.stdout + done.stderr
    report = json.loads((tmp_path / "out.json").read_text())
    failed = {d["metric"] for d in report["limits"] if d["outcome"] == "failed"}
    assert failed >= {"between_ops", "between_syncs", "between_copies"}
    lines = script.splitlines()
    named = {
        (change["name"], lines[where["line"] - 1].strip())
        for change in report["changes"]
        for where in change["where"]
    }
    for regression in BETWEEN.values():
        assert any(regression.line in line for _, line in named), regression.line
    assert "between steps" in done.stdout


def test_unchanged_code_passes_and_what_it_prints_goes_to_stderr(
    baselines: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print('hello from the script')\n" + SCRIPT)
    done = check(tmp_path, "--baseline", str(baselines), "-q", "-f", "json", "train.py")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outcome"] == "passed"
    assert done.stderr == "hello from the script\n"


def test_a_failure_is_measured_in_every_process_before_it_counts(
    baselines: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(REGRESSIONS["extra elementwise op"].script)
    done = check(tmp_path, "--baseline", str(baselines), "--repeats", "2", "-o", "out.json",
                 "train.py")  # fmt: skip
    assert done.returncode == 1
    assert json.loads((tmp_path / "out.json").read_text())["processes"] == 2
    assert done.stderr.count("launchscope: running train.py") == 2


def test_a_script_that_fails_does_not_pass_the_check(baselines: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit(7)\n")
    names = [
        f"out{suffix}" for suffix in (".json", ".md", ".html", ".txt", ".xml", ".csv", ".sarif")
    ]
    outputs = [word for name in names for word in ("-o", name)]
    done = check(tmp_path, "--baseline", str(baselines), "-q", *outputs, "train.py", "--token=s3c")
    assert done.returncode == 3
    assert "the script ended with exit code 7" in done.stderr
    files = [(tmp_path / name).read_text() for name in names]
    assert all("the script ended with exit code 7" in text for text in files[:5])
    assert '<error message="Nothing was measured' in files[4]
    assert not any("s3c" in text for text in (*files, done.stdout))


_CHOSEN = "    if chosen[step % len(chosen)] == '1':\n        "
OCCASIONAL = SCRIPT.replace(
    "for step in", "import os\nchosen = os.environ['CHOSEN']\nfor step in"
).replace("    loss.backward()\n", f"    loss.backward()\n{_CHOSEN}norm = loss.item()\n")
OCCASIONAL += f"{_CHOSEN}z = x.flip(0) * 2\n{_CHOSEN}print(loss.item())\n"


def test_what_some_iterations_do_fails_neither_in_all_nor_in_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(chosen: str, script: str, *more: str) -> dict[str, Any]:
        """`chosen`: the iterations that do it, in turn."""
        monkeypatch.setenv("CHOSEN", chosen)
        (tmp_path / "train.py").write_text(script)
        done = check(tmp_path, "--baseline", "base", "--repeats", "1", "-o", "out.json",
                     *more, "train.py")  # fmt: skip
        report = json.loads((tmp_path / "out.json").read_text())
        assert (done.returncode == 0) == (report["outcome"] != "failed"), done.stdout
        return {"outcome": report["outcome"]} | {d["metric"]: d for d in report["limits"]}

    run("10", OCCASIONAL, "--update-baseline")
    assert run("1", "import sys\n\n" + OCCASIONAL)["outcome"] == "passed"
    assert run("0", OCCASIONAL)["outcome"] == "passed"
    twice = OCCASIONAL + "    total += loss.item()\n    total += loss.item()\n"
    for chosen in ("0", "10"):
        assert run(chosen, twice)["between_syncs"]["outcome"] == "failed"
    run("0", OCCASIONAL, "--update-baseline")
    assert run("10", OCCASIONAL)["blockers"]["outcome"] == "inconclusive"
