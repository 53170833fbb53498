"""Ranks on GPUs: DDP and FSDP2 are captured and replayed, in `graphed` and by `profile`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import launchscope
from launchscope.analysis import build_profile
from launchscope.parser import read_recording
from tests import processes

pytestmark = pytest.mark.gpu

# Trains with and without graphs; both have to come to the same losses.
TRAIN = """
import json, os, sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from launchscope.graphed import graphed

kind, out = sys.argv[1:]
rank = int(os.environ["RANK"])
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.cuda.set_stream(torch.cuda.Stream())
dist.init_process_group("nccl")


def gpt():
    layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True, norm_first=True)
    return nn.Sequential(nn.Embedding(64, 128), *(layer_copy(layer) for _ in range(4)),
                         nn.Linear(128, 64))


def layer_copy(layer):
    import copy
    return copy.deepcopy(layer)


def train(with_graphs):
    torch.manual_seed(0)
    if kind == "ddp-mlp":
        model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).cuda()
    else:
        model = gpt().cuda()
    if kind.startswith("fsdp"):
        for layer in list(model)[1:-1]:
            fully_shard(layer, reshard_after_forward=kind != "fsdp-gpt-whole")
        fully_shard(model)
    else:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).flatten(0, -2), y.flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = graphed(timeout_s=30.0)(step) if with_graphs else step
    torch.manual_seed(1 + rank)
    losses = []
    for _ in range(40):
        y = torch.randint(0, 64, (8, 16), device="cuda")
        x = torch.randn(8, 16, 64, device="cuda") if kind == "ddp-mlp" else y.roll(1, 1)
        losses.append(float(run(x, y)))
    stats = run.stats if with_graphs else None
    return losses, stats


eager, _ = train(False)
found, stats = train(True)
with open(f"{out}-{rank}", "w") as file:
    json.dump({"eager": eager, "losses": found, "why": str(stats),
               "counts": [stats.eager, stats.captured, stats.replayed]}, file)
dist.destroy_process_group()
"""

# What a person's script looks like, unmodified.
SCRIPT = """
import os
import torch
import torch.distributed as dist
from torch import nn

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)).cuda()
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x, y = torch.randn(64, 128, device="cuda"), torch.randint(0, 10, (64,), device="cuda")
for step in range(600):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
"""
PIPELINE = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

rank = int(os.environ["RANK"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).cuda()
stage = PipelineStage(model, rank, 2, device)
schedule = ScheduleGPipe(stage, 4, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x = torch.randn(32, 64, device=device)
for step in range(600):
    optimizer.zero_grad()
    if rank == 0:
        schedule.step(x)
    else:
        schedule.step(target=x)
    optimizer.step()
dist.destroy_process_group()
"""
KINDS = ["ddp-mlp", "ddp-gpt", "fsdp-gpt", "fsdp-gpt-whole"]
TWO = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


def launched(folder: Path, ranks: int, *words: str) -> processes.Done:
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks))
    return processes.python(folder, *launcher, *words)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=TWO)])
def test_a_distributed_step_trains_with_graphs_as_without(
    ranks: int, kind: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    done = launched(tmp_path, ranks, "train.py", kind, "out")
    assert done.returncode == 0, done.stderr
    for rank in range(ranks):
        result: dict[str, Any] = json.loads((tmp_path / f"out-{rank}").read_text())
        assert result["counts"] == [11, 1, 28], result["why"]
        assert result["losses"] == pytest.approx(result["eager"], rel=2e-3)


def test_a_script_with_one_rank_ends_in_a_measured_replay(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    place = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": "29511"}  # fmt: skip
    done = processes.launchscope(tmp_path, "profile", "-o", "out.json", "train.py", environ=place)
    assert done.returncode == 0, done.stderr
    replay = launchscope.load(tmp_path / "out.json").replay
    assert replay.status == "measured", (replay.reason, done.stderr)
    assert replay.correct.status == "verified", replay.correct


@TWO
def test_two_ranks_replay_together(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    output = "-m", "launchscope", "profile", "-o", "out.json", "train.py"
    done = launched(tmp_path, 2, *output)
    assert done.returncode == 0, done.stderr
    assert "did not reach the same step" not in done.stdout + done.stderr
    replay = launchscope.load(tmp_path / "out.json").replay
    assert (replay.status, replay.correct.status) == ("measured", "verified"), done.stderr


@TWO
@pytest.mark.parametrize("kind", KINDS)
def test_the_replays_of_two_ranks_compute_what_eager_does(kind: str, tmp_path: Path) -> None:
    eager = TRAIN.partition("eager, _ =")[0].replace("range(40)", "range(600)")
    (tmp_path / "train.py").write_text(f"{eager}train(False)\ndist.destroy_process_group()\n")
    output = "-m", "launchscope", "profile", "-o", "out.json", "train.py", kind, "out"
    done = launched(tmp_path, 2, *output)
    assert done.returncode == 0, done.stderr
    replay = launchscope.load(tmp_path / "out.json").replay
    assert (replay.status, replay.correct.status) == ("measured", "verified"), done.stderr


@TWO
def test_pipeline_stages_are_replayed_and_checked_or_say_why_not(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PIPELINE)
    output = "-m", "launchscope", "profile", "-o", "out.json", "train.py"
    done = launched(tmp_path, 2, *output)
    assert done.returncode == 0, done.stderr
    replay = launchscope.load(tmp_path / "out.json").replay
    if replay.status == "measured":
        assert replay.correct.status == "verified", replay.correct
    else:
        assert replay.reason is not None
        assert replay.reason.code not in ("ranks_apart", "hung", "not_run"), replay.reason


@TWO
def test_a_late_rank_is_named_and_waiting_for_it_is_no_gain(tmp_path: Path) -> None:
    late = "    if dist.get_rank() == 1:\n        time.sleep(0.01)\n    optimizer.zero_grad()\n"
    script = SCRIPT.replace("    optimizer.zero_grad()\n", late).replace(
        "import os", "import os, time"
    )
    (tmp_path / "train.py").write_text(script)
    options = "--replay", "0", "--keep-trace", "-o", "out.json"
    done = launched(tmp_path, 2, "-m", "launchscope", "profile", *options, "train.py")
    assert done.returncode == 0, done.stderr
    profile = launchscope.load(tmp_path / "out.json")
    assert profile.ranks is not None
    assert profile.ranks.slowest == "rank 1"
    waited = profile.ranks.rows[0].exposed_communication_ms
    assert waited is not None
    assert waited > 5
    (waiting,) = tmp_path.glob("**/rank-0")
    unknown = build_profile(read_recording(waiting)).facts.gain_unknown
    assert unknown is not None
    assert unknown.code == "waits_for_ranks"
