"""`launchscope adopt` on a GPU: verified patches of unmodified scripts, and none that is wrong."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from launchscope.model import Adoption
from launchscope.parser import read_saved
from tests.processes import launchscope

pytestmark = pytest.mark.gpu

_TIMEOUT_S = 540
SAMPLES = ("small_mlp", "small_gpt", "lstm")
# Dropout, a schedule that is set by hand, and clipping, as in many public scripts.
DROPOUT = """
import math, torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(*[m for _ in range(8) for m in (nn.Linear(256, 256), nn.ReLU(),
    nn.Dropout(0.1))], nn.Linear(256, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loss_fn = nn.CrossEntropyLoss()
for step in range(400):
    for group in optimizer.param_groups:
        group["lr"] = 1e-3 * 0.5 * (1 + math.cos(step / 100))
    x = torch.randn(64, 256).cuda()
    y = torch.randint(10, (64,)).cuda()
    optimizer.zero_grad()
    loss = loss_fn(model(x), y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 10 == 0:
        print(step, loss.item())
"""


# Under a scaler only a fused optimizer is in the graph; NAdam needs `capturable`.
INFERENCE = """
import torch
from torch import nn
torch.manual_seed(0)
layers = [m for _ in range(12) for m in (nn.Linear(256, 256), nn.ReLU(), nn.LayerNorm(256))]
model = nn.Sequential(*layers, nn.Linear(256, 10)).cuda().eval()
inputs = torch.randn(64, 32, 256)
found = []
with torch.inference_mode():
    for i in range(400):
        scores = model(inputs[i % 64].cuda()).softmax(-1)
        found.append(scores.argmax(-1).cpu())
print(torch.cat(found).bincount())
"""


def adopt(folder: Path, *words: str, code: int = 0) -> Adoption:
    saved = folder / "adoption.json"
    done = launchscope(folder, "adopt", "-o", str(saved), *words, timeout=_TIMEOUT_S)
    assert done.returncode == code, done.stdout + done.stderr
    found: Adoption = read_saved(saved, Adoption)
    return found


def require_verified(found: Adoption) -> None:
    assert found.outcome == "verified", found
    assert found.diff
    assert found.steps >= 24
    assert found.values
    assert found.speedup is not None
    assert found.speedup > 1.0
    assert found.replayed_pct is not None
    assert found.replayed_pct >= 90.0


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_gets_a_verified_patch(name: str, tmp_path: Path, sample_workloads: Path) -> None:
    script = tmp_path / f"{name}.py"
    shutil.copy(sample_workloads / script.name, script)
    before = script.read_bytes()
    found = adopt(tmp_path, "-o", "graph.patch", script.name)
    require_verified(found)
    assert script.read_bytes() == before
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply", "graph.patch"], cwd=tmp_path, check=True)
    subprocess.run([sys.executable, script.name, "--steps", "20"], cwd=tmp_path, check=True)


def test_an_inference_sample_is_compared_by_its_outputs(
    tmp_path: Path, sample_workloads: Path
) -> None:
    script = tmp_path / "transformer_inference.py"
    shutil.copy(sample_workloads / script.name, script)
    found = adopt(tmp_path, script.name)
    require_verified(found)
    assert found.covered == "forward"


def test_an_inference_loop_that_reads_its_results_gets_a_patch(tmp_path: Path) -> None:
    (tmp_path / "infer.py").write_text(INFERENCE)
    found = adopt(tmp_path, "infer.py")
    require_verified(found)
    assert found.reads >= found.steps  # copies to the host
    assert any(line.endswith(" scores = model(inputs_part).softmax(-1)") for line in found.diff)


def test_a_step_with_dropout_and_a_schedule_is_equal(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(DROPOUT)
    found = adopt(tmp_path, "train.py")
    require_verified(found)
    assert found.exact
    assert found.reads


def test_a_verified_patch_is_applied_by_git(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(DROPOUT)
    adopt(tmp_path, "-o", "graph.patch", script.name)
    subprocess.run(["git", "apply", "graph.patch"], cwd=tmp_path, check=True)
    assert "from launchscope import graphed" in script.read_text()
    subprocess.run([sys.executable, script.name], cwd=tmp_path, check=True)


def test_a_large_step_that_a_graph_does_not_speed_up_gets_no_patch(
    tmp_path: Path, sample_workloads: Path
) -> None:
    script = tmp_path / "wide_mlp.py"
    shutil.copy(sample_workloads / script.name, script)
    found = adopt(tmp_path, script.name)
    assert found.outcome == "not_needed"
    assert not found.diff


@pytest.mark.skipif("NANOGPT" not in os.environ, reason="NANOGPT names no checkout")
def test_nanogpt_gets_a_verified_patch_that_is_twice_as_fast(tmp_path: Path) -> None:
    """Unmodified, with random tokens in place of its data."""
    checkout = tmp_path / "nanogpt"
    shutil.copytree(os.environ["NANOGPT"], checkout, ignore=shutil.ignore_patterns(".git"))
    data = checkout / "data" / "shakespeare_char"
    data.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(0)
    for part in ("train.bin", "val.bin"):
        tokens = torch.randint(0, 65, (200_000,), generator=generator).to(torch.int16)
        (data / part).write_bytes(tokens.numpy().tobytes())
    characters = {str(number): number for number in range(65)}
    meta = {"vocab_size": len(characters), "itos": {}, "stoi": characters}
    (data / "meta.pkl").write_bytes(pickle.dumps(meta))
    found = adopt(checkout, "train.py", "config/train_shakespeare_char.py", "--compile=False")
    require_verified(found)
    assert found.speedup is not None
    assert found.speedup >= 2.0, json.dumps(found.notes)
