"""launchscope report on traces: by content, several of them, and everything that is wrong."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from launchscope import save
from launchscope.cli import main
from launchscope.model import CheckResult
from launchscope.parser import read_saved
from launchscope.report import render
from tests.builders import TraceBuilder, loop_trace
from tests.gate.profiles import failed_on_gpu
from tests.kineto_text import kineto_text
from tests.nsys_builder import nsys
from tests.rules.profiles import rehearsal

RECORDED = Path(__file__).parents[2] / "sample_workloads" / "recordings" / "lstm"


def step(builder: TraceBuilder) -> None:
    for index in range(10):
        builder.op("aten::mul").work(20).launch(kernel_us=4, name=f"k{index % 3}")


def kineto(path: Path, steps: int = 5, extra: dict[str, object] | None = None) -> Path:
    text = kineto_text({**(extra or {}), **loop_trace(steps, step).document()})
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def export(path: Path) -> Path:
    built = nsys()
    for _ in range(6):
        built.launch(name="a").launch(name="b").work(300)
    return built.write(path)


@pytest.mark.parametrize("name", ["t.json.gz", "trace"])
def test_a_trace_is_recognized_by_its_content_not_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert main(["report", "-v", str(kineto(tmp_path / name))]) == 0
    shown = capsys.readouterr().out
    assert "predicted from the trace" in shown
    for text in ("share that a graph removes", "queue delay"):
        assert text in shown


def test_a_profile_made_from_a_trace_can_be_saved_and_rendered_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "profile.json"
    assert main(["report", str(kineto(tmp_path / "t.json")), "-o", str(saved)]) == 0
    first = capsys.readouterr().out
    assert json.loads(saved.read_text())["mode"] == "trace"
    assert main(["report", str(saved)]) == 0
    assert capsys.readouterr().out == first


def test_the_report_says_what_a_step_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(kineto(tmp_path / "t.json"))
    assert main(["report", path, "--step-from", "none"]) == 0
    assert "whole span" in capsys.readouterr().out
    assert main(["report", path, "--step-range", "launchscope.step#"]) == 0
    assert "range launchscope.step" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--step-from", "forward"], "needs the script"),
        (["-f", "nonsense"], "unknown format"),
    ],
)
def test_contradictory_options_are_usage_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert main(["report", str(kineto(tmp_path / "t.json")), *options]) == 2
    assert message in capsys.readouterr().err


def test_two_files_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = kineto(tmp_path / "a.json"), export(tmp_path / "b.sqlite")
    saved, written = tmp_path / "d.json", tmp_path / "d.md"
    assert main(["report", str(one), str(other), "-o", str(saved), "-o", str(written)]) == 0
    shown = capsys.readouterr()
    assert shown.out.count("\n  appeared ") == 2
    assert shown.out.count("\n  vanished ") == 3
    assert "devices differ" not in shown.out  # one of the files does not name its own
    assert json.loads(saved.read_text())["schema"] == "launchscope/difference/1"
    assert "| launches per step | 10 | 2 |" in written.read_text()


def test_a_folder_is_reported_by_rank_with_what_could_not_be_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in range(3):
        kineto(tmp_path / f"trace_rank{rank}.json.gz")
    (tmp_path / "trace_rank3.json").write_text('{"traceEvents": [\n  {\n    "ph": "X"')
    (tmp_path / "notes.txt").write_text("no trace")
    saved = tmp_path / "ranks.md"
    assert main(["report", str(tmp_path), "-o", str(saved)]) == 0
    shown = capsys.readouterr().out
    assert "3 of 4 ranks" in shown
    assert "trace_rank3.json: " in shown
    assert "Differences between the ranks" in saved.read_text()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.json", b"", "is empty"),
        ("text.json", b"hello", "not a trace"),
        ("list.json", b"[1, 2]", "not a trace"),
        ("wrong.json", b'{"traceEvents": ]]]', "has no list of events"),
        ("half.json", b'{"traceEvents": [', "no device work"),
        ("none.json", b'{"traceEvents": []}', "no device work"),
        ("other.json", b'[{"name": "k", "ph": "X", "ts": 1}]', "another program than Kineto"),
        ("bad.json.gz", b"\x1f\x8bnonsense", "not a trace"),
        ("bad.sqlite", b"SQLite format 3\0" + b"\xff" * 4000, "damaged"),
    ],
)
def test_an_unreadable_file_ends_with_3_and_a_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert main(["report", str(path)]) == 3
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert str(path) in error


def test_a_trace_that_breaks_off_is_reported_with_its_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = kineto(tmp_path / "t.json", steps=9)
    path.write_bytes(path.read_bytes()[:-9000])
    assert main(["report", str(path)]) == 0
    assert "the file ends early" in " ".join(capsys.readouterr().out.split())


def test_a_folder_without_traces_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path)]) == 3
    assert "holds no recording, no trace" in capsys.readouterr().err


@pytest.mark.child
def test_ranks_are_read_in_processes_when_they_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("launchscope.workflows.load_input._WORTH_PROCESSES", 0)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    paths = [str(kineto(tmp_path / f"rank{rank}.json")) for rank in range(3)]
    assert main(["report", *paths]) == 0
    assert "3 ranks" in capsys.readouterr().out


def test_a_folder_of_unrelated_recordings_is_a_table_of_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "files.json"
    assert main(["report", str(RECORDED.parent), "-o", str(saved)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "14 files" in shown
    assert "ranks" not in shown.lower()
    assert "small_gpt.py" in shown
    assert main(["report", str(saved)]) == 0
    assert "14 files" in capsys.readouterr().out


def test_a_pipe_is_refused_without_waiting_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert main(["report", str(path)]) == 3
    assert "is a pipe or a device" in capsys.readouterr().err
    kineto(tmp_path / "t.json")
    assert main(["report", str(tmp_path)]) == 0  # a folder with one is read without it


@pytest.mark.parametrize("count", [2, 3])
def test_a_saved_difference_and_saved_ranks_are_rendered_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    saved = tmp_path / "saved.json"
    paths = [str(kineto(tmp_path / f"t{index}.json", steps=5 + index)) for index in range(count)]
    assert main(["report", *paths, "-o", str(saved)]) == 0
    first = capsys.readouterr().out
    assert main(["report", str(saved)]) == 0
    assert capsys.readouterr().out == first
    for name, again in (("again.json", saved.read_text()), ("again.md", None)):
        assert main(["report", str(saved), "-o", str(tmp_path / name)]) == 0
        assert again is None or (tmp_path / name).read_text() == again
    capsys.readouterr()
    assert main(["report", str(saved), "--threshold", "20%"]) == 2
    assert "does not apply to" in capsys.readouterr().err
    assert main(["report", str(saved), paths[0]]) == 3
    assert "another kind" in capsys.readouterr().err


def test_files_with_the_same_name_are_shown_with_their_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = []
    for rank in range(3):
        folder = tmp_path / f"rank{rank}"
        folder.mkdir()
        paths.append(str(kineto(folder / "trace.json", steps=5)))
    assert main(["report", *paths, "-f", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["rank"], row["name"]) for row in rows] == [
        (rank, f"rank{rank}/trace.json") for rank in range(3)
    ]
    assert main(["report", *paths]) == 0
    assert capsys.readouterr().out.count("/trace.json") >= 3


@pytest.mark.parametrize("name", ["junit", "github"])
def test_a_saved_check_is_rendered_again_in_every_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    saved = tmp_path / "check.json"
    save(failed_on_gpu(), saved)
    shown = render(read_saved(saved, CheckResult), name)
    assert main(["report", str(saved), "-f", name]) == 0
    assert capsys.readouterr().out == (shown if isinstance(shown, str) else shown.decode())


@pytest.mark.parametrize("option", [("--step-range", "train"), ("--step-from", "none")])
def test_the_steps_of_a_recording_cannot_be_chosen_again(
    capsys: pytest.CaptureFixture[str], option: tuple[str, str]
) -> None:
    assert main(["report", str(RECORDED), *option]) == 2
    assert f"{option[0]}" in capsys.readouterr().err


@pytest.mark.parametrize("how", [["-v"], ["-f", "markdown"]])
def test_a_report_of_everything_shows_which_operators_launched_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: list[str]
) -> None:
    file = str(kineto(tmp_path / "t.json"))
    assert main(["report", file, *how]) == 0
    assert "aten::mul" in capsys.readouterr().out
    assert main(["report", file]) == 0
    assert "aten::mul" not in capsys.readouterr().out


def test_a_format_without_anything_to_show_ends_with_2_and_the_files_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    built, saved = tmp_path / "untraced.json", tmp_path / "profile.json"
    save(rehearsal(), built)
    assert main(["report", str(built), "-f", "perfetto", "-o", str(saved)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "error: a Profile does not hold its trace" in said.err
    assert "hint: name a trace" in said.err
    assert json.loads(saved.read_text())["timelines"] is None
