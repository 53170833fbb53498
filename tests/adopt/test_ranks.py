"""A change of a script of two ranks, run and compared on both; CUDA graphs are emulated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launchscope.adopt.observation import Observed
from launchscope.adopt.observed_runs import ObservedRun, RankRun, RunEnd
from launchscope.adopt.runs import why_eager

pytestmark = pytest.mark.child

HEAD = """
import tests.adopt.emulated_gpu
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from tests.graphed.ranks_worker import _reduce_scatter
from launchscope import graphed

torch.set_num_threads(1)
dist.init_process_group("gloo")
dist.reduce_scatter_tensor = dist.reduce_scatter_single = _reduce_scatter
rank = dist.get_rank()
torch.manual_seed(0)
features = torch.randn(512, 16)
data = TensorDataset(features, features[:, :4].argmax(1))
loader = DataLoader(data, 16, sampler=DistributedSampler(data))
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
model.register_buffer("seen", torch.zeros(()))
mesh = init_device_mesh("cpu", (2,))
for layer in (model[0], model[2]):
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
loss_fn = nn.CrossEntropyLoss()
"""
STEP = """
optimizer.zero_grad()
loss = loss_fn(model(x), y)
loss.backward()
optimizer.step()
model.seen.add_(1)
"""
PATCHED = """
@graphed
def step(x, y):
    {step}
    return loss.detach()
"""
LOOP = """
calls, big = 0, True
for epoch in range(8):
    for x, y in loader:
        calls += 1
        {step}
        if big and rank == 0 and calls % 50 == 0:
            print(loss.item())
"""


def test_of_ranks_that_are_not_replayed_the_one_that_cannot_says_why() -> None:
    follows = ("ranks", "rank 1 cannot do this call with a graph", "", 9)
    cannot = ("changed", "the learning rate is another one", "/there/train.py:7", 4)
    runs = [
        RankRun(rank, RunEnd(), (), Observed(units=9, reasons=reasons))
        for rank, reasons in enumerate([(follows, ("warmup", "", "", 20)), (cannot,)])
    ]
    why = "rank 1: the learning rate is another one [train.py:7]"
    assert why_eager(ObservedRun(tuple(runs))) == why
    assert why_eager(ObservedRun(tuple(runs[1:]))) == why.removeprefix("rank 1: ")
    assert why_eager(ObservedRun(tuple(runs[:1]))) == "rank 1 cannot do this call with a graph"


def indented(text: str, spaces: int) -> str:
    return text.strip().replace("\n", "\n" + " " * spaces)


def test_ranks_replay_together_and_each_is_compared_with_itself(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder, results = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("results")
    (folder / "train.py").write_text(HEAD + LOOP.format(step=indented(STEP, 8)))
    changed = HEAD + PATCHED.format(step=indented(STEP, 4)) + LOOP.format(step="loss = step(x, y)")
    (folder / "changed.txt").write_text(changed)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
               "2", "-m", "tests.adopt.ranks_worker", str(folder), str(results)]  # fmt: skip
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads((results / "found.json").read_text())
    assert found["found"] is None
    assert [calls["replayed"] > 50 for calls in found["calls"]] == [True, True]
    assert found["forced"] == ["learning_rate", "evaluation", "state_dict", "short_batch"]
    assert found["switched"] == [[0, 1], [0]]
    assert found["slowest"] == [max(pair) for pair in zip(*found["windows"])]
    wrong = found["wrong on one"]
    assert (wrong["what"], wrong["name"], wrong["rank"], wrong["unit"]) == ("state", "seen", 1, 1)


PLAIN = """
import sys
import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(200):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 4)).square().mean()
    loss.backward()
    if rank == 1 and i == 9: raise OSError('planted')
    optimizer.step()
"""


def test_all_ranks_end_with_one_report_that_names_the_one_that_failed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PLAIN)
    command = [sys.executable, "-m", "launchscope", "adopt", "--nproc-per-node", "2", "-q"]
    ended = subprocess.run(
        [*command, "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )
    shown = " ".join((ended.stdout + ended.stderr).split())
    assert ended.returncode == 1, shown
    assert shown.count("rank 1: OSError: planted") == 1
    assert "Traceback" not in shown
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
