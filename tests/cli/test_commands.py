"""The other commands, as processes where that matters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from launchscope import save
from launchscope.cli import main
from launchscope.parser import read_profile
from launchscope.rules import advise, all_rules
from tests.processes import launchscope
from tests.rules.profiles import profile

Streams = pytest.CaptureFixture[str]
RANK = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "profile.json"
    save(advise(profile()), path)
    return path


def test_report_makes_a_new_verdict_for_another_threshold(
    saved: Path, tmp_path: Path, capsys: Streams
) -> None:
    again = tmp_path / "again.json"
    assert main(["report", str(saved), "--threshold", "80%", "-o", str(again), "-q"]) == 0
    verdict = read_profile(again).verdict
    assert verdict is not None
    assert verdict.recommendation == "stay_eager"


def test_report_makes_a_new_verdict_for_expected_steps(saved: Path, capsys: Streams) -> None:
    assert main(["report", str(saved), "--expected-steps", "3"]) == 0
    assert "pays back after 7 steps, and you expect 3" in capsys.readouterr().out


def test_rules_lists_every_rule(capsys: Streams) -> None:
    assert main(["rules"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()] == [rule.code for rule in all_rules()]
    assert "LS020  The GPU waits for data\n" in out


def test_docs_lists_and_prints_the_pages(
    capsys: Streams, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["docs"]) == 0
    assert "limits        Platforms and limits\n" in capsys.readouterr().out
    page = (Path(__file__).parents[2] / "docs" / "limits.md").read_text("utf-8")
    assert main(["docs", "limits.md"]) == 0
    assert capsys.readouterr().out == page
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(["docs", "limits"]) == 0
    assert "\x1b[1;4mPlatforms and limits" in capsys.readouterr().out
    assert main(["docs", "limit"]) == 2
    assert "launchscope docs lists the pages" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("noun", "golden"),
    [
        ("profile", "adopt"),
        ("adoption", "adoption"),
        ("check", "check_rehearsal"),
        ("comparison", "comparison.strategies"),
        ("difference", "difference"),
        ("ranks", "ranks"),
    ],
)
def test_a_saved_report_is_valid_by_its_schema(noun: str, golden: str, capsys: Streams) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    assert main(["docs", f"{noun}.schema.json"]) == 0
    schema = json.loads(capsys.readouterr().out)
    path = Path(__file__).parents[1] / "report" / "golden" / f"{golden}.json"
    value = json.loads(path.read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(value, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(value | {"schema": 1}, schema)


def test_a_schema_of_nothing_is_an_error(capsys: Streams) -> None:
    assert main(["docs", "x.schema.json"]) == 2
    assert "hint: one of profile, adoption" in capsys.readouterr().err


@pytest.mark.child
def test_a_closed_pipe_has_another_exit_code_than_a_failed_check(saved: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "launchscope", "check", "--limit", "launches_per_step=9999", saved],
        stdout=nobody_reads(),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (141, "")


def nobody_reads() -> int:
    """The end of a pipe that is written to, with the other end closed."""
    reads, writes = os.pipe()
    os.close(reads)
    return writes


@pytest.mark.child
def test_doctor_shows_what_can_be_measured(tmp_path: Path) -> None:
    result = launchscope(tmp_path, "doctor")
    assert result.returncode == 0, result.stderr
    assert "torch" in result.stdout
    assert "CUDA device" in result.stdout


@pytest.mark.child
def test_doctor_on_an_interpreter_that_does_not_start(tmp_path: Path) -> None:
    result = launchscope(tmp_path, "doctor", "--python", str(tmp_path / "python"))
    assert result.returncode == 3
    assert "cannot be started" in result.stdout
    assert "Nothing can be measured" in result.stdout


@pytest.mark.child
def test_without_a_command_the_help_is_shown(tmp_path: Path) -> None:
    result = launchscope(tmp_path)
    assert result.returncode == 2
    assert "Usage:" in result.stdout


def test_a_usage_error_points_to_the_help_of_its_command(capsys: Streams) -> None:
    assert main(["profile", "--warmup"]) == 2
    assert "launchscope profile --help" in capsys.readouterr().err


def test_a_rule_is_explained(capsys: Streams) -> None:
    assert main(["rules", "ls002"]) == 0
    assert capsys.readouterr().out.startswith("# LS002")
    assert main(["rules", "LS2"]) == 2
    assert "there is no rule LS2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        (("train.py", "--lr", "1"), "profile train.py --lr 1"),
        (("-o", "x.html", "train.py"), "profile -o x.html train.py"),
        (("--timing", "3", "train.py", "--token=abc"), "profile --timing 3 train.py '--token=***'"),
        (("-m", "pkg.train"), "profile -m pkg.train"),
        (("chek", "train.py"), "check train.py"),
        (("rulse", "LS001"), "rules LS001"),
        (("python",), "--help lists commands and options"),
    ],
)
def test_a_line_without_a_command_gets_the_right_one_as_a_hint(
    typed: tuple[str, ...],
    right: str,
    saved: Path,
    capsys: Streams,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(saved.parent)
    assert main(list(typed)) == 2
    assert capsys.readouterr().err.endswith(f"\nhint: launchscope {right}\n")


def test_what_measures_one_process_refuses_to_be_a_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Streams
) -> None:
    (tmp_path / "train.py").write_text("")
    for name, value in RANK.items():
        monkeypatch.setenv(name, value)
    assert main(["compare", str(tmp_path / "train.py")]) == 2
    said = capsys.readouterr().err
    assert "launchscope compare measures one process, and this is one of several ranks" in said
