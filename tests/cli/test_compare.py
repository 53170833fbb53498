"""launchscope compare as a person runs it, on a machine without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.cli import main
from launchscope.model import Comparison
from launchscope.parser import read_saved
from tests import processes

SCRIPT = """
import argparse, sys, torch
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--ignore", action="store_true")
args = parser.parse_args()
print("this goes to stderr")
if args.batch_size == 8:
    sys.exit("cannot take 8")
if args.batch_size == 16:
    raise torch.OutOfMemoryError("CUDA out of memory")
n = 4 if args.ignore else args.batch_size
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(60):
    loss = model(torch.randn(n, 8)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
QUICK = ("--warmup", "3", "--inspect", "1")


def launchscope(folder: Path, *words: str) -> processes.Done:
    environ = {**processes.WITHOUT_GPU, "COLUMNS": "100"}
    return processes.launchscope(folder, *words, environ=environ)


@pytest.mark.child
def test_a_point_that_fails_is_a_row_and_the_others_are_measured(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    saved = ("-o", "c.json", "-o", "c.md")
    done = launchscope(
        tmp_path, "compare", *QUICK, "--batch-sizes", "16,4,8,32", *saved, "train.py"
    )
    assert done.returncode == 0, done.stderr
    comparison = read_saved(tmp_path / "c.json", Comparison)
    measured = {point.batch_size: point.profile is not None for point in comparison.points}
    assert measured == {4: True, 8: False, 16: False, 32: True}
    exited, starved = (comparison.points[i].failure for i in (1, 2))
    assert exited is not None
    assert starved is not None
    assert (exited.exit_code, exited.out_of_memory) == (1, False)
    assert starved.out_of_memory
    assert "out of memory" in done.stdout
    assert "batch size 8: the script ended with exit code 1" in " ".join(done.stdout.split())
    assert "this goes to stderr" not in done.stdout
    assert "Structure only" in done.stdout
    assert " ms" not in done.stdout
    assert comparison.mode == "rehearsal"
    assert (tmp_path / "c.md").read_text().startswith("# COMPARISON: `train.py`")
    again = launchscope(tmp_path, "report", "c.json")
    assert again.returncode == 0, again.stderr
    report = done.stdout.split("\nNext\n")[0]
    assert again.stdout.strip() == report.strip()


@pytest.mark.child
def test_points_that_measure_the_same_work_compare_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    sizes = ("--batch-sizes", "2,4", "train.py", "--ignore")
    done = launchscope(tmp_path, "compare", *QUICK, *sizes)
    assert done.returncode == 3, done.stderr
    assert "every point measured the same work" in " ".join(done.stdout.split())
    assert "does train.py use the batch size that it gets?" in done.stderr


@pytest.mark.child
def test_no_point_measured_is_exit_code_3(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = launchscope(tmp_path, "compare", "--batch-sizes", "8", "train.py")
    assert done.returncode == 3
    assert "nothing could be measured at any point" in done.stderr


@pytest.mark.child
@pytest.mark.parametrize("mode", ["graphed", pytest.param("adopt", marks=pytest.mark.campaign)])
def test_modes_that_need_a_gpu_say_so(tmp_path: Path, mode: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("assert os", "# assert os"))
    done = launchscope(tmp_path, "compare", *QUICK, "--modes", f"eager,{mode}", "train.py")
    assert done.returncode == 3
    assert "nothing ran on a GPU" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--batch-sizes", "8"], "no script was given"),
        (["train.py"], "there is nothing to compare"),
        (["--batch-sizes", "8", "trian.py"], "trian.py: no such file\nhint: did you mean train.py"),
        (["--modes", "eager,compil", "train.py"], "did you mean compile?"),
        (
            ["--batch-sizes", "8", "-f", "junit", "train.py"],
            "the format junit cannot show a Comparison",
        ),
        (["--batch-sizes", "8", "--step-from", "none", "train.py"], "is for reading traces"),
        (["--batch-sizes", "8", "bare.py"], "measure the same thing\nhint: put {batch_size} into"),
        (["--batch-sizes", "8,x", "train.py"], "expected a whole number, 1 or more, not x"),
        (["--batch-sizes", "", "train.py"], "expected a whole number, 1 or more, not ''"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "bare.py").write_text("import torch")
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *arguments]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert message in err
