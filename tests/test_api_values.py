"""Values at a Python prompt and in a notebook: their tables, printed, saved."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

import pytest

import launchscope
import launchscope.api
from launchscope.cli import main
from launchscope.config import load_settings
from launchscope.errors import ConfigError, InputError, UsageError
from launchscope.model import (
    CheckResult,
    Comparison,
    Profile,
    Target,
)
from launchscope.report import render
from launchscope.rules import advise
from tests.gate.profiles import failed_on_gpu
from tests.report.comparisons import comparison
from tests.rules.profiles import blocked, profile, rehearsal


@pytest.fixture
def loaded(tmp_path: Path) -> Profile:
    launchscope.save(advise(profile()), tmp_path / "profile.json")
    return launchscope.load(tmp_path / "profile.json")


def test_a_result_has_its_tables_as_frames(loaded: Profile) -> None:
    made = launchscope.tables(loaded)
    assert list(made) == ["metrics", "kernels", "operations", "lines", "modules", "operators"]
    assert made["kernels"]["total_us"].tolist() == sorted(
        (row.total_us for row in loaded.kernels), reverse=True
    )
    (points,) = launchscope.tables(comparison()).values()
    assert points["batch_size"].tolist() == [8, 32, 128, 256, 1024]


@pytest.mark.parametrize(
    "value",
    [
        advise(blocked()),
        advise(rehearsal()),
        profile(),
        profile(target=Target("script", "a\nb\033[2J##[error].py", ())),
        comparison(),
        failed_on_gpu(),
    ],
)
def test_show_prints_the_short_report(
    value: Profile | Comparison | CheckResult, capsys: pytest.CaptureFixture[str]
) -> None:
    launchscope.show(value)
    shown = capsys.readouterr().out
    assert shown.startswith("╭─")
    assert "\033" not in shown
    assert "##[" not in shown


def test_no_traceback_has_a_command_that_a_file_gives(tmp_path: Path) -> None:
    name = "##[error]x"
    made = json.loads(render(advise(profile()), "json")) | {"mode": name}
    (tmp_path / "profile.json").write_text(json.dumps(made))
    (tmp_path / "settings.toml").write_text("['##[error]x']\n" * 2)
    with pytest.raises(InputError) as damaged:
        launchscope.load(tmp_path / "profile.json")
    with pytest.raises(ConfigError) as wrong:
        load_settings(config=tmp_path / "settings.toml")
    with pytest.raises(InputError) as missing:
        launchscope.load(tmp_path / name)
    for raised in (damaged, wrong, missing):
        text = "".join(traceback.format_exception(raised.value))
        assert "##[" not in text
        assert r"\x23#[error]x" in text


def test_save_writes_what_the_command_writes(
    loaded: Profile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for suffix in ("json", "html", "md", "txt"):
        ours, theirs = tmp_path / f"ours.{suffix}", tmp_path / f"theirs.{suffix}"
        launchscope.save(loaded, ours)
        assert main(["report", "-q", str(tmp_path / "profile.json"), "-o", str(theirs)]) == 0
        assert ours.read_text() == theirs.read_text()
    assert launchscope.load(tmp_path / "ours.json") == loaded


def test_save_refuses_what_the_option_refuses(loaded: Profile, tmp_path: Path) -> None:
    for name, message in (
        ("x.pdf", "no output format for suffix '.pdf'"),
        ("x", "a file without a suffix"),
        ("none/x.html", "is not a directory"),
        (".", "is a directory"),
    ):
        with pytest.raises(UsageError, match=message):
            launchscope.save(loaded, tmp_path / name)
    with pytest.raises(UsageError, match="the format junit cannot show a Comparison"):
        launchscope.save(comparison(), tmp_path / "x.xml")
    assert [path.name for path in tmp_path.iterdir()] == ["profile.json"]
