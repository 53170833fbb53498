"""launchscope check on saved Profiles: exit codes, files, annotations, and every bad input."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

import pytest
from msgspec.structs import replace

from launchscope import save
from launchscope.cli import main
from launchscope.gate.baseline import baseline_folder
from launchscope.model import KernelRow, Metric, OpRow, Profile, SourceLine, Target
from launchscope.parser import read_profile
from launchscope.recorded import recorded
from tests.gate.profiles import OPS, elsewhere, gpu, item, rehearsal

Streams = pytest.CaptureFixture[str]
RECORDINGS = Path(__file__).parents[2] / "sample_workloads" / "recordings"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    save(gpu(), "now.json")
    for baseline in (gpu(), rehearsal()):
        baseline_folder("bl").write("train", baseline)
    kernels = (*gpu().kernels, KernelRow("mul_kernel", 1, 1.5, SourceLine("train.py", 30)))
    save(gpu({"launches_per_step": 556}, kernels=kernels), "worse.json")
    save(gpu({"launches_per_step": 540}), "better.json")
    save(gpu({"launches_per_step": Metric(555, "1", samples=(555.0, 557.0))}), "unsure.json")
    save(rehearsal(), "dry.json")
    more = (*OPS, OpRow("aten.mul", 1, SourceLine("train.py", 32)))
    save(rehearsal(more, [item(33)]), "dry_worse.json")
    return tmp_path


def check(*arguments: str) -> int:
    return main(["check", "-q", *arguments])


# ------------------------------------------------------------------------- exit codes


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--baseline", "bl", "now.json"), 0, "PASSED"),
        (("--baseline", "bl", "worse.json"), 1, "rose from 555 to 556"),
        (("--baseline", "bl", "better.json"), 0, "stale"),
        (("--baseline", "bl", "unsure.json"), 0, "(555 to 557)"),
        (("--strict", "--baseline", "bl", "unsure.json"), 1, "(555 to 557)"),
        (("--baseline", "bl", "dry_worse.json"), 1, "train.py:32  aten.mul"),
        (("--limit", "launches_per_step=555", "now.json"), 0, "PASSED"),
        (
            ("--limit", "launches_per_step=554", "now.json"),
            1,
            "came to 555; the limit allows at most 554",
        ),
        (("--limit", "launches_per_step=900", "dry.json"), 3, "nothing ran on a GPU"),
        (("--baseline", "bl", "--limit", "launches_per_step=+1", "worse.json"), 0, "+1"),
    ],
)
def test_the_exit_code_shows_the_outcome(
    arguments: tuple[str, ...], code: int, message: str, capsys: Streams
) -> None:
    assert check(*arguments) == code
    streams = capsys.readouterr()
    assert message in streams.out
    assert streams.err == ""


def test_a_missing_baseline_fails(capsys: Streams) -> None:
    assert check("--baseline", "empty", "now.json") == 3
    out = capsys.readouterr().out
    assert "there is no baseline of train in empty" in " ".join(out.replace("│", "").split())
    assert "--update-baseline" in out
    assert not Path("empty").exists()


def test_a_folder_without_this_device_lists_the_devices_it_has(capsys: Streams) -> None:
    save(elsewhere(gpu(), device="NVIDIA A100"), "other.json")
    assert check("--baseline", "bl", "other.json") == 3
    assert "there are train.nvidia-h200.json" in " ".join(capsys.readouterr().out.split())


# --------------------------------------------------------------------------- baselines


@pytest.mark.parametrize("made", [gpu, rehearsal])
def test_a_metric_that_another_version_knows_is_not_compared(
    made: Callable[[], Profile], capsys: Streams
) -> None:
    newer = {**made().metrics, "metric_of_tomorrow": Metric(1.5, "ms", samples=(1.0, 2.0))}
    save(replace(made(), metrics=newer), "newer.json")
    save(made(), "older.json")
    for base in ("older", "newer"):
        assert check("--baseline", base, "--update-baseline", f"{base}.json") == 0
        for now in ("older", "newer"):
            assert check("--baseline", base, f"{now}.json") == 0
    assert "bug" not in capsys.readouterr().err


def test_only_update_baseline_changes_a_baseline(capsys: Streams) -> None:
    assert check("--baseline", "bl", "--update-baseline", "now.json") == 0
    assert check("--baseline", "bl", "better.json") == 0
    place = Path("bl/train.nvidia-h200.json")
    assert read_profile(place).value("launches_per_step") == 555
    assert check("--baseline", "bl", "--update-baseline", "better.json") == 0
    shown = capsys.readouterr().out.replace("│", "")
    assert "Compared with the previous baseline" in " ".join(shown.split())
    assert read_profile(place).value("launches_per_step") == 540


@pytest.mark.parametrize(
    ("arguments", "proposed"),
    [
        (("--baseline", "new", "now.json"), "--update-baseline now.json"),
        (("--baseline", "bl", "better.json"), "--update-baseline better.json"),
        (("--baseline", "bl", "worse.json"),
         "# Makes this measurement the baseline: launchscope check --baseline bl --update-baseline "
         "worse.json"),
        (("--baseline", "bl", "--limit", "launches_per_step=9", "now.json"), None),
        (("--baseline", "bl", "--limit", "step_ms=9", "dry.json"), None),
        (("--baseline", "bl", "now.json"), None),
    ],
)  # fmt: skip
def test_the_command_for_a_new_baseline_is_shown_where_it_would_help(
    arguments: tuple[str, ...], proposed: str | None, capsys: Streams
) -> None:
    main(["check", *arguments])
    out = capsys.readouterr().out
    assert ("--update-baseline" in out.partition("Next")[2]) == (proposed is not None)
    assert proposed is None or proposed in " ".join(out.split())
    # zsh takes a comment that is typed behind a command for arguments.
    assert not re.search(r"\S.*# ", out.partition("Next")[2])


# -------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("now.json",), 2, "nothing to compare with"),
        (("--limit", "launches_per_step=+0", "now.json"), 2, "is relative, and there is no"),
        (("--update-baseline", "now.json"), 2, "--baseline, which is not given"),
        (("--baseline", "bl", "gone.json"), 2, "gone.json: no such file"),
        (("--baseline", "bl", f"{'n' * 300}.json"), 2, "too long"),
        (("--baseline", "bl", f"{'n' * 300}.py"), 2, "too long"),
        (("--baseline", "bl", "-o", f"{'n' * 300}.md", "now.json"), 2, "cannot write nn"),
        (("--baseline", "bl", ""), 2, "no script was given"),
        (("--baseline", "bl"), 2, "no script was given"),
        (("--baseline", "torn", "now.json"), 3, "train.nvidia-h200.json is damaged"),
        (("--baseline", "foreign", "now.json"), 3, "is not a launchscope Profile"),
        (("--baseline", "older", "now.json"), 3, "(launchscope/profile/1), and this one reads"),
        (("--baseline", "bl", "torn.json"), 3, "torn.json is damaged"),
        (("--baseline", "now.json", "now.json"), 2, "--baseline: now.json is a file"),
        (("--baseline", "bl", "--repeats", "0", "now.json"), 2, "--repeats"),
        (("--baseline", " ", "now.json"), 2, "--baseline is empty"),
        (("--baseline", "torn.json/in", "--update-baseline", "now.json"), 2, "cannot write the"),
        (("now.json", "--baseline", "bl"), 2, "check --baseline bl now.json"),
        (("--baseline", "bl", "now.json", "worse.json"), 2, "nothing can follow it"),
        (("--baseline", "bl", "-o", "/nowhere/a.xml", "now.json"), 2, "not a directory"),
    ],
)
def test_bad_input_is_one_sentence_and_changes_nothing(
    arguments: tuple[str, ...], code: int, message: str, folder: Path, capsys: Streams
) -> None:
    whole = Path("now.json").read_bytes()
    Path("torn.json").write_bytes(whole[: len(whole) // 2])
    older = whole.replace(b"launchscope/profile/2", b"launchscope/profile/1")
    contents = {"torn": whole[:99], "foreign": b'{"traceEvents": []}', "older": older}
    for name, content in contents.items():
        Path(name).mkdir()
        Path(name, "train.nvidia-h200.json").write_bytes(content)
    Path("a.py").write_text("import torch")
    before = contents_of(folder)
    assert check(*arguments) == code
    streams = capsys.readouterr()
    assert message in streams.err
    assert streams.err.startswith("error: ")
    assert len(streams.err.splitlines()) <= 2
    assert "Traceback" not in streams.err
    if "--update-baseline" not in arguments:
        updated = check("--update-baseline", *arguments)
        assert updated in (0, 2, 3)
    assert contents_of(folder) == before


def contents_of(folder: Path) -> dict[Path, bytes]:
    """The files, less the baseline that `--update-baseline` may replace."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.parent.name != "bl")
    return {path: path.read_bytes() for path in files}


@pytest.mark.parametrize("more", [(), ("--update-baseline",)], ids=["check", "update"])
@pytest.mark.parametrize("output", ["bl/train.nvidia-h200.json", "link.json", "./now.json"])
def test_a_report_never_overwrites_what_is_compared(
    output: str, more: tuple[str, ...], folder: Path, capsys: Streams
) -> None:
    Path("link.json").symlink_to("bl/train.nvidia-h200.json")
    before = {path: path.read_bytes() for path in folder.rglob("*.json")}
    assert check("--baseline", "bl", *more, "-o", output, "now.json") == 2
    assert "would overwrite what is read" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in folder.rglob("*.json")} == before


# ----------------------------------------------------------------------------- formats


def test_every_file_is_written_even_if_the_check_fails(capsys: Streams) -> None:
    names = [f"out{suffix}" for suffix in (".json", ".md", ".xml", ".sarif", ".txt")]
    outputs = [word for name in names for word in ("-o", name)]
    assert check("--baseline", "bl", *outputs, "worse.json") == 1
    for name in names:
        assert "mul_kernel" in Path(name).read_text(), name
    assert json.loads(Path("out.json").read_text())["schema"] == "launchscope/check/3"


def test_github_gets_annotations_and_a_summary(
    monkeypatch: pytest.MonkeyPatch, capsys: Streams
) -> None:
    Path("summary.md").write_text("# of another step\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    assert check("--baseline", "bl", "worse.json") == 1
    out = capsys.readouterr().err
    assert "\n::error file=train.py,line=30,title=launchscope%3A new kernel::mul_kernel +1" in out
    summary = Path("summary.md").read_text()
    assert summary.startswith("# of another step\n")
    assert "| +1 | 0 | 1 | kernel | `train.py:30` | `mul_kernel` |" in summary


@pytest.mark.child
def test_an_annotation_begins_a_line_where_a_script_has_not_ended_its_last_one() -> None:
    command = [sys.executable, "-m", "launchscope", "check", "-q", "-f", "github"]
    with Path("log").open("wb", buffering=0) as log:
        log.write(b"loss 0.5\r")
        files = ["--baseline", "bl", "worse.json"]
        subprocess.run([*command, *files], stdout=log, stderr=log, timeout=30, check=False)
    assert Path("log").read_bytes().startswith(b"loss 0.5\r\n::error ")


@pytest.mark.child
@pytest.mark.parametrize("name", ["folder", "missing/summary.md", "circle", "/dev/full"])
def test_a_summary_that_cannot_be_written_changes_no_outcome(name: str) -> None:
    Path("folder").mkdir()
    Path("circle").symlink_to("circle")
    command = [sys.executable, "-m", "launchscope", "check", "--baseline", "bl"]
    done = subprocess.run(
        [*command, "now.json"],
        env={**os.environ, "GITHUB_STEP_SUMMARY": name},
        stderr=subprocess.PIPE,
        timeout=30,
        check=True,
    )
    assert f"note: cannot write {name}: ".encode() in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--baseline", "new", "--update-baseline", "now.json"),
        ("--baseline", "bl", "--update-baseline", "worse.json"),
    ],
)
def test_no_format_shows_an_outcome_as_a_failure_where_the_baseline_was_written(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: Streams
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "summary.md")
    assert check("-o", "a.xml", "-o", "a.sarif", "-o", "a.json", *arguments) == 0
    streams = capsys.readouterr()
    assert "\n::notice " in streams.err
    assert "::error " not in streams.out + streams.err
    text = Path("a.xml").read_text()
    assert 'failures="0" errors="0"' in text
    assert "<skipped" in text
    assert '"level": "error"' not in Path("a.sarif").read_text()


@pytest.mark.parametrize("name", ["json", "junit", "sarif", "csv", "terminal"])
def test_annotations_stay_out_of_reports(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: Streams
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert check("--baseline", "bl", "-f", name, "worse.json") == 1
    streams = capsys.readouterr()
    assert "::error" not in streams.out
    assert "\n::error file=train.py" in streams.err


def test_lines_are_relative_to_the_repository(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Streams
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert check("--baseline", "bl", "worse.json") == 1
    assert "::error file=train.py,line=30" in capsys.readouterr().err
    (folder / ".git").mkdir()
    (folder / "sub").mkdir()
    monkeypatch.chdir(folder / "sub")
    assert check("--baseline", "../bl", "-o", "a.sarif", "../worse.json") == 1
    assert "::error file=sub/train.py,line=30" in capsys.readouterr().err
    assert '"uri": "sub/train.py"' in Path("a.sarif").read_text()


@pytest.mark.parametrize(
    ("renewal", "code", "message"),
    [
        (lambda now: elsewhere(now, torch="2.12.0"), 0, "PyTorch changed from 2.11.0 to 2.12.0"),
        (
            lambda now: replace(now, counting=2),
            3,
            "by version 1 of the counting rules, this run by version 2",
        ),
    ],
    ids=["PyTorch", "counting"],
)
def test_an_upgrade_asks_for_a_new_baseline_and_may_replace_it(
    renewal: Callable[[Profile], Profile], code: int, message: str, capsys: Streams
) -> None:
    save(renewal(gpu({"launches_per_step": 556})), "upgraded.json")
    arguments = ("--baseline", "bl", "upgraded.json")
    assert check(*arguments) == code
    out = " ".join(capsys.readouterr().out.replace("│", "").split())
    assert message in out
    assert "check --baseline bl --update-baseline upgraded.json" in out
    assert check("--update-baseline", *arguments) == 0
    assert check(*arguments) == 0


def test_scripts_of_one_name_have_a_baseline_each() -> None:
    for place in ("vae", "gan"):
        target = Target("script", "train.py", (), f"{place}/train.py")
        save(replace(gpu(), target=target), f"{place}.json")
        assert check("--baseline", "new", "--update-baseline", f"{place}.json") == 0
    assert sorted(path.name for path in Path("new").iterdir()) == [
        "gan-train-a28cb5.nvidia-h200.json",
        "vae-train-41c893.nvidia-h200.json",
    ]


def test_no_secret_reaches_a_file_or_the_terminal(capsys: Streams) -> None:
    args = recorded(Target("script", "train.py", ("--hf-token", "hf_abc", "--epochs", "1"))).args
    assert args == ("--hf-token", "***", "--epochs", "1")
    assert check("--baseline", "bl", "now.json", "--api-key=s3cret") == 2
    assert "s3cret" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["small_gpt", "variable_lengths"])
def test_a_recording_made_on_a_gpu_passes_against_its_own_baseline(
    name: str, capsys: Streams
) -> None:
    recording = str(RECORDINGS / name)
    assert check("--baseline", "new", "--update-baseline", recording) == 0
    (written,) = Path("new").iterdir()
    assert fnmatch(written.name, f"sample_workloads-{name}-*.nvidia-h200.json")
    assert written.stat().st_size < 40_000
    assert check("--baseline", "new", recording) == 0
    assert "Nothing: the same device operations" in capsys.readouterr().out
