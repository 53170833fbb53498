"""Several streams: recurrent nets through cuDNN, and branches that join again.

Eager runs their streams almost one after another, a replay side by side, so they show how well
the prediction knows what running side by side saves.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from tests.benchmarks.zoo.families.sequences import VOCABULARY, Recurrent
from tests.benchmarks.zoo.workload import Family, Step, Workload, inference, training


def _reads(
    device: torch.device,
    batch: int,
    *,
    kind: type[nn.LSTM | nn.RNN] = nn.LSTM,
    width: int = 256,
    layers: int = 2,
    length: int = 64,
    trains: bool = True,
    bidirectional: bool = False,
) -> Step:
    recurrent = kind(width, width, layers, batch_first=True, bidirectional=bidirectional)
    model = Recurrent(recurrent).to(device)
    tokens = torch.randint(0, VOCABULARY, (batch, length), device=device)
    if not trains:
        return inference(model.eval(), (tokens,))

    def loss_of(tokens: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())

    return training(loss_of, (tokens,), torch.optim.SGD(model.parameters(), lr=1e-5))


def _branches(device: torch.device, batch: int, *, streams: int, calls: int, matmul: bool) -> Step:
    """As many chains of calls as streams, on matrices as wide as the batch."""
    weight = torch.randn(batch, batch, device=device) / batch**0.5
    values = torch.randn(batch, batch, device=device)
    beside = [torch.cuda.Stream() for _ in range(streams - 1)] if device.type == "cuda" else []

    def chain(x: torch.Tensor) -> torch.Tensor:
        for _ in range(calls):
            x = x @ weight if matmul else x * 1.01
        return x

    def joined(x: torch.Tensor) -> torch.Tensor:
        if not beside:
            return torch.stack([chain(x) for _ in range(streams)]).sum(0)
        current = torch.cuda.current_stream()
        for stream in beside:
            stream.wait_stream(current)
        found = [chain(x)]
        for stream in beside:
            with torch.cuda.stream(stream):
                found.append(chain(x))
        for stream in beside:
            current.wait_stream(stream)
        return torch.stack(found).sum(0)

    return inference(joined, (values,))


FAMILY = Family(
    "streams",
    None,
    (
        Workload("lstm-2-layers-train-b32", "train", 32, _reads),
        Workload(
            "lstm-3-layers-train-b64",
            "train",
            64,
            partial(_reads, width=512, layers=3, length=48),
        ),
        Workload("lstm-both-ways-train-b32", "train", 32, partial(_reads, bidirectional=True)),
        Workload(
            "lstm-3-layers-inference-b16",
            "inference",
            16,
            partial(_reads, layers=3, length=100, trains=False),
        ),
        Workload("rnn-train-b32", "train", 32, partial(_reads, kind=nn.RNN)),
        Workload(
            "branches-2-matmul-512",
            "inference",
            512,
            partial(_branches, streams=2, calls=40, matmul=True),
        ),
        Workload(
            "branches-4-matmul-256",
            "inference",
            256,
            partial(_branches, streams=4, calls=40, matmul=True),
        ),
        Workload(
            "branches-2-matmul-2048",
            "inference",
            2048,
            partial(_branches, streams=2, calls=20, matmul=True),
        ),
        Workload(
            "branches-4-elementwise-4096",
            "inference",
            4096,
            partial(_branches, streams=4, calls=10, matmul=False),
        ),
    ),
)
