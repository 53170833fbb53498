"""launchscope profile as a person runs it, on a machine without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from launchscope.parser import read_profile

TINY = """
import sys, torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters())
print("started with", sys.argv[1:])
for _ in range(40):
    loss = model(torch.randn(16, 8)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def launchscope(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "launchscope", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        check=False,
    )


def test_a_script_is_rehearsed_and_its_profile_saved(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TINY)
    result = launchscope(tmp_path, "profile", "-o", "p.json", "train.py", "--lr", "1")
    assert result.returncode == 0, result.stderr
    script, report = result.stdout.split("\n\n", 1)
    assert script == "started with ['--lr', '1']"
    assert "INCONCLUSIVE" in report.splitlines()[0]
    assert " ms" not in report
    profile = read_profile(tmp_path / "p.json")
    assert profile.verdict is not None
    assert (profile.mode, profile.verdict.basis) == ("rehearsal", "structural")
    assert (profile.value("device_ops_per_step") or 0) > 10
    again = launchscope(tmp_path, "report", "p.json")
    assert again.stdout.splitlines()[:6] == report.splitlines()[:6]


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ("import sys; sys.exit(7)", 7, "exit code 7"),
        ("def f(:", 1, "SyntaxError"),
        ("import torch; print(torch.ones(2).sum())", 3, "without calling a torch.nn.Module"),
    ],
    ids=["exit 7", "syntax error", "no step"],
)
def test_a_script_that_cannot_be_measured_ends_with_one_sentence(
    tmp_path: Path, source: str, code: int, message: str
) -> None:
    (tmp_path / "train.py").write_text(source)
    result = launchscope(tmp_path, "profile", "train.py")
    assert result.returncode == code
    error = result.stderr.split("error: ")[1]
    assert message in error
    assert "Traceback" not in error


def test_a_full_disk_under_stdout_is_one_sentence(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    with full.open("w") as stdout:
        result = subprocess.run(
            [sys.executable, "-m", "launchscope", "rules"],
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert result.returncode == 2
    assert result.stderr.startswith("error: cannot write the report to stdout")


def test_a_rehearsal_without_its_only_pass_says_which_pass_it_needs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TINY)
    result = launchscope(tmp_path, "profile", "--inspect", "0", "train.py")
    assert result.returncode == 3
    assert "only the inspect pass measures anything" in result.stderr
    assert "hint: leave out --inspect 0" in result.stderr
