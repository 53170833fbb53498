"""A script that uses no GPU on a machine that has one is told so.

The scripts pretend the GPU: whoever looks for its file finds it, and a torch that knows CUDA.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.analysis import build_profile
from launchscope.model import Profile, UnusedGpu
from launchscope.rules import advise
from tests.runner.children import PointResult, recorded

pytestmark = pytest.mark.child

MACHINE = """
import glob, os, sys

def files_of_gpus(*args, **kwargs):
    sys.modules["torch"].version.cuda = "13.0"
    return ["/dev/nvidia0"]

glob.glob = files_of_gpus
"""
TRAINING = """
import torch
CHOICE
net = torch.nn.Linear(4, 2).to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(20):
    opt.zero_grad()
    net(torch.randn(8, 4, device=device)).sum().backward()
    opt.step()
"""


@pytest.fixture
def _visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")


def ran(folder: Path, choice: str, *args: str, machine: str = MACHINE) -> PointResult:
    return recorded(folder, machine + TRAINING.replace("CHOICE", choice), *args)


def unused(run: PointResult) -> UnusedGpu:
    assert run.recording.inspect is not None
    assert run.recording.inspect.unused_gpu is not None
    return run.recording.inspect.unused_gpu


def advised(run: PointResult) -> Profile:
    return advise(build_profile(run.recording))


@pytest.mark.usefixtures("_visible")
def test_a_cpu_script_on_a_machine_with_a_gpu_is_told_so(tmp_path: Path) -> None:
    run = ran(tmp_path, 'device = "cpu"')
    assert unused(run) == UnusedGpu("script")
    profile = advised(run)
    assert profile.verdict is not None
    said = "Not decided, because the script never used the GPU: "
    assert profile.verdict.headline.startswith(said)
    assert "machine with a GPU" not in "".join(profile.verdict.instructions)
    (finding,) = (finding for finding in profile.findings if finding.code == "LS041")
    assert finding.title.startswith("The script never used the GPU: only the structure")
    assert profile.environment.torch is not None
    assert profile.environment.device is None
    assert run.recording.notes == ()  # nothing is said twice


@pytest.mark.parametrize("by_script", [False, True])
def test_cuda_visible_devices_that_hides_the_gpu_is_named(
    by_script: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0" if by_script else "")
    hides = 'os.environ["CUDA_VISIBLE_DEVICES"] = "-1"\n' if by_script else ""
    run = ran(tmp_path, 'device = "cpu"', machine=f"{MACHINE}{hides}")
    assert unused(run) == UnusedGpu("hidden")
    profile = advised(run)
    assert profile.verdict is not None
    assert "because CUDA_VISIBLE_DEVICES hides the GPU from the script" in profile.verdict.headline
    assert profile.verdict.instructions[0].startswith("Set CUDA_VISIBLE_DEVICES")
