"""The last run is kept, and `report` without a path shows it again."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from launchscope.cli import main
from launchscope.parser import read_profile, read_saved
from launchscope.workflows.last_run import keep
from tests.report.comparisons import comparison
from tests.rules.profiles import profile
from tests.workflows.scripts import TRAINING

Streams = pytest.CaptureFixture[str]
PROFILE = ("profile", "-q", "--warmup", "3", "--inspect", "1")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(TRAINING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "launchscope"


@pytest.mark.child
def test_report_without_a_path_shows_the_last_profile_in_any_format(
    cache: Path, capsys: Streams
) -> None:
    assert main([*PROFILE, "-o", "p.json", "train.py", "4", "--token", "s3cret"]) == 0
    capsys.readouterr()
    assert main(["report"]) == 0
    shown = capsys.readouterr()
    assert shown.err == f"launchscope: the last run, kept in {cache / 'last.json'}\n"
    assert main(["report", "-q", "p.json"]) == 0
    assert capsys.readouterr().out == shown.out
    assert main(["report", "-q", "-f", "json", "-o", "last.html"]) == 0
    assert capsys.readouterr().out == Path("p.json").read_text()
    assert Path("last.html").read_text().startswith("<!doctype html>")
    assert "s3cret" not in (cache / "last.json").read_text()
    assert stat.S_IMODE((cache / "last.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert [path.name for path in cache.iterdir()] == ["last.json"]


def test_a_result_that_cannot_be_kept_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("train.py/below", "/proc/nowhere"):
        monkeypatch.setenv("XDG_CACHE_HOME", os.path.abspath(folder))
        assert not keep(profile())


def test_nothing_is_kept_if_the_person_says_so(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAUNCHSCOPE_NO_CACHE", "1")
    assert not keep(profile())
    assert not cache.exists()


def test_without_a_run_the_error_says_what_to_type(capsys: Streams) -> None:
    assert main(["report"]) == 3
    assert capsys.readouterr().err == (
        "error: no run is kept yet\n"
        "hint: launchscope profile SCRIPT measures one; launchscope report PATH reads a file\n"
    )


@pytest.mark.parametrize("variable", ["", "relative/cache"])
def test_without_a_cache_folder_of_its_own_a_person_has_the_one_in_the_home_folder(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", variable)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    keep(comparison())
    kept = tmp_path / "home" / ".cache" / "launchscope" / "last.json"
    assert read_saved(kept, type(comparison())) == comparison()
    monkeypatch.setattr("sys.platform", "darwin")
    keep(profile())
    assert read_profile(tmp_path / "home/Library/Caches/launchscope/last.json") == profile()
