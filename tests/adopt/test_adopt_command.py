"""`launchscope adopt` from the script to the patch, in real processes without a GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from launchscope.adopt import verification
from launchscope.cli import main
from launchscope.model import Adoption
from launchscope.report.patch import UNVERIFIED
from launchscope.workflows import adopt as workflow
from tests.report.adoptions import verified

pytestmark = pytest.mark.child

SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(400):
    x = torch.randn(8, 16)
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(verification, "ENVIRONMENT", {})  # as in test_verification
    for module in (verification, workflow):
        monkeypatch.setattr(module, "environment", lambda scratch: {"TMPDIR": str(scratch)})
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_without_a_gpu_the_patch_is_shown_as_not_verified_saved_and_kept(
    script: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(script.parent / "cache"))
    source = "import sys\nassert sys.argv[1:] == ['--name', 'two words']\n"
    source += "print('its output', file=sys.stderr)\nprint('its output')\n" + SCRIPT
    script.write_text(source)
    script.rename("real.py")
    script.symlink_to("real.py")  # git applies no patch to what a link leads to
    words = ["train.py", "--name", "two words"]
    assert main(["adopt", "-o", "graph.patch", *words]) == 0
    shown, errors = capfd.readouterr()
    assert errors.count("its output") == 1
    assert "\nits output" not in shown  # it is in the diff
    assert "NOT VERIFIED ON A GPU" in shown
    assert "train.py --name 'two words'" in shown
    assert "values that the script reads of tensors" in shown
    assert "+@graphed" in shown
    assert main(["report"]) == 0
    assert "+@graphed" in capfd.readouterr().out
    assert script.read_text() == source
    patch = script.with_name("graph.patch")
    assert patch.read_text().splitlines()[0] == UNVERIFIED
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(["git", "apply", "graph.patch"], check=True)
    assert "@graphed" in script.read_text()


def test_a_script_without_a_model_gets_no_patch(
    script: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script.write_text("import torch\ntorch.ones(1, 2) + 1\n")
    assert main(["adopt", "-q", "-o", "graph.patch", "-o", "a.md", "train.py"]) == 1
    assert capsys.readouterr().err.startswith(
        "error: cannot write graph.patch: there is no patch: no optimizer"
    )
    assert "No optimizer stepped" in Path("a.md").read_text()


def test_a_patch_that_cannot_be_written_loses_no_other_file(
    script: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_folder(*given: object) -> Adoption:
        Path("gone").rmdir()
        return verified()

    monkeypatch.setattr(workflow, "adopt", without_folder)
    Path("gone").mkdir()
    files = ("gone/a.patch", "b.PATCH", "c.md", "d.json")
    assert main(["adopt", "-q", *(w for name in files for w in ("-o", name)), "train.py"]) == 2
    assert (
        capsys.readouterr().err == "error: cannot write gone/a.patch: No such file or directory\n"
    )
    assert "+@graphed" in Path("b.PATCH").read_text()
    assert Path("c.md").exists()
    assert Path("d.json").exists()


@pytest.mark.parametrize(
    ("ending", "error"),
    [
        ("print('loading'); raise SystemExit('no data')", "no data"),
        ("print('loading'); 1 / 0", "ZeroDivisionError: division by zero"),
        ("print('no data'); raise SystemExit(3)", "no data"),
    ],
)
def test_the_last_that_a_script_says_before_it_fails_is_its_error(
    script: Path, capsys: pytest.CaptureFixture[str], ending: str, error: str
) -> None:
    script.write_text(f"import torch\n{ending}\n")
    assert main(["adopt", "-q", "train.py"]) > 0
    assert f"failed in a copy of its folder: {error}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--threshold", "5 of 6", "train.py"], "a percentage such as 15%"),
        (["-o", "missing/graph.patch", "train.py"], "missing is not a directory"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_runs(
    script: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    problem: str,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "many")  # other programs use this name too
    assert main(["adopt", *words]) == 2
    assert problem in capsys.readouterr().err


def test_several_ranks_are_refused_before_anything_runs(
    script: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    assert main(["adopt", "train.py"]) == 2
    said = capsys.readouterr().err
    assert "launchscope adopt measures one process, and this is one of several ranks" in said
    assert "hint: start it without torchrun" in said
