"""Recurrent networks through cuDNN, and torch's own transformer encoder."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from tests.benchmarks.zoo.workload import (
    Family,
    Step,
    Workload,
    inference,
    optimizer_for,
    training,
)

VOCABULARY = 256


class Recurrent(nn.Module):
    """Next-token model on recurrent layers that take the batch first."""

    def __init__(self, cell: nn.RNNBase) -> None:
        super().__init__()
        width = cell.hidden_size
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.cell = cell
        self.head = nn.Linear(width * (1 + cell.bidirectional), VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.cell(self.tokens(tokens))[0])
        return logits


class Encoder(nn.Module):
    """nn.TransformerEncoder over tokens."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, 0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.layers(self.tokens(tokens)))
        return logits


def _cells(kind: type[nn.LSTM | nn.GRU], width: int, layers: int) -> Callable[[], nn.Module]:
    return lambda: Recurrent(kind(width, width, layers, batch_first=True))


def _language_model(
    make: Callable[[], nn.Module], length: int, kind: str, *, autocast: bool = False
) -> Callable[[torch.device, int], Step]:
    def build(device: torch.device, batch: int) -> Step:
        with torch.device(device):
            model = make()
            tokens = torch.randint(0, VOCABULARY, (batch, length))
        if kind == "inference":
            return inference(model.eval(), (tokens,))

        def loss_of(tokens: torch.Tensor) -> torch.Tensor:
            logits = model(tokens)[:, :-1].flatten(0, 1).float()
            return F.cross_entropy(logits, tokens[:, 1:].flatten())

        optimizer = optimizer_for(model.parameters(), device)
        return training(loss_of, (tokens,), optimizer, autocast=autocast)

    return build


FAMILY = Family(
    "sequences",
    None,
    (
        Workload(
            "lstm-train-b32", "train", 32,
            _language_model(_cells(nn.LSTM, 256, 2), 64, "train"),
        ),
        Workload(
            "lstm-train-b256", "train", 256,
            _language_model(_cells(nn.LSTM, 1024, 2), 128, "train"),
        ),
        Workload(
            "lstm-inference-b1", "inference", 1,
            _language_model(_cells(nn.LSTM, 256, 1), 100, "inference"),
        ),
        Workload(
            "gru-train-b64", "train", 64,
            _language_model(_cells(nn.GRU, 512, 2), 64, "train"),
        ),
        Workload(
            "encoder-train-b32", "train", 32,
            _language_model(lambda: Encoder(512, 6), 128, "train", autocast=True),
        ),
        Workload(
            "encoder-train-b256", "train", 256,
            _language_model(lambda: Encoder(512, 6), 256, "train", autocast=True),
        ),
    ),
)  # fmt: skip
