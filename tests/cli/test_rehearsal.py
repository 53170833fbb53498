"""launchscope profile as a person runs it, on a machine without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from launchscope.parser import read_profile
from tests import processes
from tests.advised_flags import ADVISED, STEPS, profiled

pytestmark = pytest.mark.child

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


def launchscope(folder: Path, *words: str) -> processes.Done:
    return processes.launchscope(folder, *words, environ=processes.WITHOUT_GPU)


def test_a_script_is_rehearsed_and_its_profile_saved(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TINY)
    result = launchscope(tmp_path, "profile", "-o", "p.json", "train.py", "--lr", "1")
    assert result.returncode == 0, result.stderr
    script, report = result.stdout.split("\n\n", 1)
    assert script == "started with ['--lr', '1']"
    assert "NO GPU: STRUCTURE ONLY" in report.splitlines()[0]
    assert " ms" not in report
    profile = read_profile(tmp_path / "p.json")
    assert profile.verdict is not None
    assert (profile.mode, profile.verdict.basis) == ("rehearsal", "structural")
    assert (profile.value("device_ops_per_step") or 0) > 10
    again = launchscope(tmp_path, "report", "p.json")
    assert again.stdout.splitlines()[:6] == report.splitlines()[:6]


def test_a_full_disk_under_stdout_is_one_sentence() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    for words in (["--help"], ["--version"], ["profile", "--help"], ["rules"]):
        with full.open("w") as stdout:
            result = subprocess.run(
                [sys.executable, "-m", "launchscope", *words],
                stdout=stdout,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert result.stderr == "error: cannot write to stdout: No space left on device\n"
        assert result.returncode == 2


def test_code_scanning_names_files_from_the_root_of_the_script_s_repository(
    tmp_path: Path,
) -> None:
    for folder in ("repo/.git", "repo/pkg", "other/.git"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "link").symlink_to("repo")
    source = TINY.replace("    optimizer.step()", "    loss.item()\n    optimizer.step()")
    (tmp_path / "repo" / "pkg" / "train.py").write_text(source)
    saved, given = tmp_path / "found.sarif", tmp_path / "link/pkg/train.py"
    result = launchscope(tmp_path / "other", "profile", "-q", "-o", str(saved), str(given))
    assert result.returncode == 0, result.stderr
    (run,) = json.loads(saved.read_text())["runs"]
    found = [place["physicalLocation"] for one in run["results"] for place in one["locations"]]
    assert found
    for place in found:
        artifact = place["artifactLocation"]
        assert (artifact["uriBaseId"], artifact["uri"]) == ("%SRCROOT%", "pkg/train.py")


def test_every_flag_that_the_advice_names_runs_as_on_a_gpu(tmp_path: Path) -> None:
    profile = profiled(tmp_path, CUDA_VISIBLE_DEVICES="")
    assert profile.mode == "rehearsal"
    assert not profile.blockers
    lines = (tmp_path / "train.py").read_text().splitlines()
    ran: dict[str, dict[str, int]] = {text: {} for text in STEPS}
    for row in profile.ops:
        if row.where is not None and (text := lines[row.where.line - 1].strip()) in ran:
            ran[text][row.name] = row.count
    for (kind, flags, _), ops in zip(ADVISED, ran.values(), strict=True):
        if "fused" in flags:
            counts = {} if kind == "SGD" else {"aten._foreach_add_": 1}
            assert ops == counts | {f"aten._fused_{kind.lower()}_": 1}
        else:  # many tensors at once, their step counts included
            assert "aten._foreach_add_" in ops, (kind, ops)
            assert not {"aten.add_", "aten.mul_", "aten.addcdiv_"} & {*ops}, (kind, ops)


@pytest.mark.parametrize(
    ("moves", "hint"),
    [
        (".cuda()", "not rehearsed: what fails at train.py:4 may need the GPU"),
        ("", "run it without launchscope first; the same failure should appear"),
    ],
)
def test_only_a_failure_that_a_gpu_would_share_is_said_to_appear_without_launchscope(
    tmp_path: Path, moves: str, hint: str
) -> None:
    source = f"import torch\nx = torch.ones(2){moves}\ndef step():\n    assert x.is_cuda\nstep()\n"
    (tmp_path / "train.py").write_text(source)
    result = launchscope(tmp_path, "profile", "train.py")
    assert result.returncode == 1
    assert hint in " ".join(result.stderr.split())
