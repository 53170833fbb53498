"""Recurrent nets, which run on several streams through cuDNN."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from tests.goldens.zoo.sequences import VOCABULARY, Recurrent
from tests.goldens.zoo.workload import Build, Step, training


def _reads(device: torch.device, batch: int, *, bidirectional: bool = False) -> Step:
    recurrent = nn.LSTM(256, 256, 2, batch_first=True, bidirectional=bidirectional)
    model = Recurrent(recurrent).to(device)
    tokens = torch.randint(0, VOCABULARY, (batch, 64), device=device)

    def loss_of(tokens: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())

    return training(loss_of, (tokens,), torch.optim.SGD(model.parameters(), lr=1e-5))


STEPS: dict[str, Build] = {
    "lstm-2-layers-train-b32": _reads,
    "lstm-both-ways-train-b32": partial(_reads, bidirectional=True),
}
