"""What the inspection of a step finds, against golden files: the steps, operations, blockers and
counts of the samples, of the zoo and of odd steps.

A golden holds for one version of torch. After an intended change, delete the files and run the
tests twice: the first run writes them, and fails so that somebody looks at them.

    rm tests/goldens/torch-2.13/rehearsal/*; pytest -n 2 tests/goldens; git diff tests/goldens

Those of another version are written once its folder exists; those of a GPU with `-m gpu`.
"""

from __future__ import annotations

import difflib
import importlib.util
import json
import os
from pathlib import Path

import pytest
import torch

from launchscope.analysis import build_profile
from launchscope.errors import NoStepError
from launchscope.model import Recording, Schedule, Target
from launchscope.parser import read_recording
from launchscope.rules import advise
from launchscope.runner.parent.interpreter import Process
from launchscope.runner.parent.session import RunOptions, record
from tests.benchmarks.zoo.catalog import FAMILIES
from tests.goldens.cases import CASES, HEAD
from tests.goldens.golden import ROOT, golden_text
from tests.samples.sizes import SMALLER

FOLDER = Path(__file__).parent / "torch-{}.{}".format(*torch.__version__.split(".")[:2])
SAMPLES = sorted(path.stem for path in (ROOT / "sample_workloads").glob("*.py"))
ZOO = {workload.name: family.package for family in FAMILIES for workload in family.workloads}
# Of the steps of the zoo that need torch alone, those that a CPU computes soon.
ON_THE_CPU = (
    "mlp-train-b64", "mlp-inference-b1", "dlrm-train-b512", "pinn-train-n4096", "dqn-train-b64",
    "dqn-image-train-b256", "unet-train-b4", "lstm-2-layers-train-b32", "lstm-both-ways-train-b32",
)  # fmt: skip
INSPECTED = Schedule(warmup=5, timing=0, trace=0, replay=0, verify=0)
# An RNN, an attention with a mask and mixed precision consist of other operations on a GPU. Two
# samples do not have the same number in every step.
OTHER_OPS_ON_A_GPU = {"amp_gradscaler", "lstm", "variable_lengths", "data_dependent", "generate"}
pytestmark = pytest.mark.child


def compare(case: str, script: Path, folder: Path, *args: str) -> Recording:
    """Record the script, and hold the recording against the golden of this case."""
    with open(os.devnull, "w") as printed:
        options = RunOptions(Process(stdout=printed.fileno()), timeout_s=600.0)
        target = Target("script", str(script), args)
        outcome = record(target, INSPECTED, options, folder / "results", lambda event: None)
    assert outcome.problem is None or isinstance(outcome.problem, NoStepError)
    recording = read_recording(outcome.directory)
    if FOLDER.exists():
        hold(case, golden_text(recording, script))
    return recording


def hold(case: str, found: str) -> None:
    on_gpu = os.environ.get("CUDA_VISIBLE_DEVICES") != ""
    golden = FOLDER / ("gpu" if on_gpu else "rehearsal") / f"{case}.json"
    if not golden.exists():
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(found)
        pytest.fail(f"{golden} is new: look at it, and commit it", pytrace=False)
    rows = golden.read_text().splitlines(), found.splitlines()
    difference = "\n".join(difflib.unified_diff(*rows, "golden", "now", n=2, lineterm=""))
    if difference:
        pytest.fail(f"{golden.relative_to(ROOT)} differs\n{difference}", pytrace=False)


@pytest.fixture(params=["rehearsal", pytest.param("gpu", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "gpu":
        return "cuda"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return "cpu"


@pytest.mark.parametrize("name", CASES)
def test_an_odd_step(name: str, device: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(HEAD + CASES[name])
    compare(name, script, tmp_path)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample(name: str, device: str, tmp_path: Path) -> None:
    args = () if name == "generate" else ("--steps", "60", *SMALLER.get(name, ()))
    samples = ROOT / "sample_workloads"
    recording = compare(f"sample.{name}", samples / f"{name}.py", tmp_path, *args)
    if device == "cuda":
        return
    profile = advise(build_profile(recording))
    assert profile.verdict is not None
    assert (profile.mode, profile.verdict.basis) == ("rehearsal", "structural")
    if name not in OTHER_OPS_ON_A_GPU:
        on_gpu = json.loads((samples / "recordings" / name / "recording.json").read_text())
        (counted,) = set(on_gpu["inspect"]["device_ops"])
        assert profile.value("device_ops_per_step") == counted
    times = [key for key, m in profile.metrics.items() if m.unit in ("ms", "us", "x", "%")]
    assert times
    assert all(profile.value(key) is None for key in times)


@pytest.mark.parametrize("name", ZOO)
def test_a_step_of_the_zoo(name: str, device: str, tmp_path: Path) -> None:
    if device == "cpu" and name not in ON_THE_CPU:
        pytest.skip("only on a GPU")
    if (library := ZOO[name]) is not None and importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    compare(f"zoo.{name}", ROOT / "tests/goldens/zoo_script.py", tmp_path, name, device)
