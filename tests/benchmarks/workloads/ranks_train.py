"""Trains a small model on several ranks, as `torchrun` starts them. Plain PyTorch.

    torchrun --nproc-per-node 2 ranks_train.py KIND [--late WHY | --ends HOW] [--cpu]

KIND says how the ranks share the work. `--late`: what rank 1 does longer than the others. `--ends`:
what becomes of rank 1: it is killed, has no memory left where a graph is captured, or stands still
until the others' collectives run into their time limit.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)
from torch.utils.data import DataLoader, Dataset

STEPS = 600
ENDS_AT = {"cuda": 45, "cpu": 12}  # after the step was timed; while its ops are inspected
COLLECTIVE_LIMIT = timedelta(seconds=15)
WORDS, WIDTH, LENGTH, LAYERS, BATCH = 256, 256, 64, 4, 8
LATE_S, MORE_MATMULS = 0.02, 200  # more than any of the hosts took to launch a step (8 to 15 ms)
SHARED = ("ddp-mlp", "ddp-gpt")
SHARDED = ("fsdp-gpt", "fsdp-gpt-whole", "fsdp-gpt-mixed")
KINDS = (*SHARED, *SHARDED, "tensor-gpt", "pipeline")


class Batches(Dataset[Tensor]):
    """Sequences of words; each takes `late_s` to read."""

    def __init__(self, seed: int, late_s: float):
        self.words = torch.randint(
            WORDS, (512, LENGTH + 1), generator=torch.Generator().manual_seed(seed)
        )
        self.late_s = late_s

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> Tensor:
        if self.late_s:
            time.sleep(self.late_s)
        return self.words[index]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        # As many heads as this rank has, where they are parted.
        q, k, v = (
            each(x).unflatten(-1, (-1, 64)).transpose(1, 2) for each in (self.q, self.k, self.v)
        )
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.out(seen.transpose(1, 2).flatten(2))
        return out


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_1(x))
        out: Tensor = x + self.down(nn.functional.gelu(self.up(self.norm_2(x))))
        return out


def gpt() -> nn.Sequential:
    layers = [Layer() for _ in range(LAYERS)]
    return nn.Sequential(nn.Embedding(WORDS, WIDTH), *layers, nn.Linear(WIDTH, WORDS))


def mlp() -> nn.Sequential:
    parts = [part for _ in range(4) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return nn.Sequential(nn.Embedding(WORDS, WIDTH), *parts, nn.Linear(WIDTH, WORDS))


def shared_model(kind: str, device: torch.device) -> nn.Module:
    """The model as the ranks share it."""
    model = (mlp() if kind == "ddp-mlp" else gpt()).to(device)
    if kind in SHARED:
        return nn.parallel.DistributedDataParallel(model)
    if kind in SHARDED:
        policy = MixedPrecisionPolicy()
        if kind == "fsdp-gpt-mixed":
            policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        reshard = kind != "fsdp-gpt-whole"
        for layer in list(model)[1:-1]:
            fully_shard(layer, reshard_after_forward=reshard, mp_policy=policy)
        fully_shard(model, reshard_after_forward=reshard, mp_policy=policy)
        return model
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for layer in list(model)[1:-1]:
        columns = ("attention.q", "attention.k", "attention.v", "up")
        plan: dict[str, ParallelStyle] = {name: ColwiseParallel() for name in columns}
        plan |= {name: RowwiseParallel() for name in ("attention.out", "down")}
        parallelize_module(layer, mesh, plan)
    return model


def loss_of(words: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(words.flatten(0, 1), targets.flatten())


def batches(arguments: argparse.Namespace, rank: int, device: torch.device) -> Iterator[Tensor]:
    # Ranks that share the work on one batch read the same one.
    seed = 1 + rank if arguments.kind in (*SHARED, *SHARDED) else 1
    late_s = LATE_S / BATCH if arguments.late == "data" and rank == 1 else 0.0
    data = Batches(seed, late_s)
    while True:
        for batch in DataLoader(data, BATCH, shuffle=True, drop_last=True):
            yield batch.to(device)


def whole_step(
    arguments: argparse.Namespace, model: nn.Module, optimizer: torch.optim.Optimizer, rank: int
) -> Callable[[Tensor], None]:
    size = 256 if arguments.cpu else 1536
    more = torch.randn(size, size, device=next(model.parameters()).device)

    def step(batch: Tensor) -> None:
        optimizer.zero_grad()
        if rank == 1 and arguments.late == "host":
            time.sleep(LATE_S)
        if rank == 1 and arguments.late == "work":
            for _ in range(MORE_MATMULS):
                torch.mm(more, more)
        loss = loss_of(model(batch[:, :-1]), batch[:, 1:])
        starves = rank == 1 and arguments.ends == "memory" and not arguments.cpu
        if starves and torch.cuda.is_current_stream_capturing():
            torch.empty(2**42, dtype=torch.uint8, device=batch.device)
        loss.backward()
        optimizer.step()

    return step


def pipelined(device: torch.device, rank: int) -> Callable[[Tensor], None]:
    layers, ranks = list(gpt()), dist.get_world_size()
    begin, end = (len(layers) * number // ranks for number in (rank, rank + 1))
    part = nn.Sequential(*layers[begin:end]).to(device)
    stage = PipelineStage(part, rank, ranks, device)
    schedule = ScheduleGPipe(stage, 4, loss_fn=loss_of)
    optimizer = torch.optim.AdamW(part.parameters(), lr=1e-3)

    def step(batch: Tensor) -> None:
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(batch[:, :-1].contiguous())
        elif rank == ranks - 1:
            schedule.step(target=batch[:, 1:].contiguous())
        else:
            schedule.step()
        optimizer.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--late", choices=("data", "host", "work"))
    parser.add_argument("--ends", choices=("killed", "memory", "still"))
    parser.add_argument("--cpu", action="store_true")
    arguments = parser.parse_args()
    device = torch.device("cpu")
    if not arguments.cpu:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    limit = COLLECTIVE_LIMIT if arguments.ends == "still" else None
    dist.init_process_group("gloo" if arguments.cpu else "nccl", timeout=limit)
    rank = dist.get_rank()
    torch.manual_seed(0)
    if arguments.kind == "pipeline":
        step = pipelined(device, rank)
    else:
        model = shared_model(arguments.kind, device)
        # Only some of the parameters are DTensors with tensor parallelism: no foreach.
        foreach = False if arguments.kind == "tensor-gpt" else None
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=foreach)
        step = whole_step(arguments, model, optimizer, rank)
    for number, batch in zip(range(STEPS), batches(arguments, rank, device), strict=False):
        if rank == 1 and number == ENDS_AT[device.type]:
            if arguments.ends == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if arguments.ends == "still":
                time.sleep(600)
        step(batch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
