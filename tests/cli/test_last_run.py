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


@pytest.mark.child
def test_a_comparison_takes_the_place_of_the_profile_before(cache: Path, capsys: Streams) -> None:
    keep(profile())
    compared = ("compare", "-q", "--param", "width=4,8", "--warmup", "3", "--inspect", "1")
    assert main([*compared, "-o", "c.json", "train.py", "{width}"]) == 0
    capsys.readouterr()
    assert main(["report", "-q", "-f", "json"]) == 0
    assert capsys.readouterr().out == Path("c.json").read_text()


@pytest.mark.child
def test_a_check_keeps_nothing(cache: Path) -> None:
    check = ("check", "-q", "--repeats", "1", "--warmup", "3", "--inspect", "1")
    assert main([*check, "--limit", "device_ops_per_step=9999", "train.py"]) == 0
    assert not cache.exists()


@pytest.mark.child
def test_a_run_whose_result_cannot_be_kept_succeeds(
    capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("train.py/below", "/proc/nowhere", "train.py"):
        monkeypatch.setenv("XDG_CACHE_HOME", os.path.abspath(folder))
        keep(profile())
    assert main([*PROFILE, "train.py"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.child
def test_nothing_is_kept_if_the_person_says_so(
    cache: Path, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAUNCHSCOPE_NO_CACHE", "1")
    assert main([*PROFILE, "train.py"]) == 0
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


def test_a_kept_file_of_another_version_is_named(cache: Path, capsys: Streams) -> None:
    keep(profile())
    kept = cache / "last.json"
    kept.write_bytes(kept.read_bytes().replace(b"launchscope/profile/2", b"launchscope/profile/1"))
    assert main(["report", "-q"]) == 3
    assert str(kept) in capsys.readouterr().err


def test_the_last_run_gets_a_new_verdict_for_another_threshold(
    cache: Path, capsys: Streams
) -> None:
    keep(profile())
    assert main(["report", "-q", "--threshold", "80%"]) == 0
    assert "STAY EAGER" in capsys.readouterr().out.splitlines()[0]
