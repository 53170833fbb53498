"""Recurrent networks through cuDNN, and torch's own transformer encoder."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.goldens.zoo.workload import Build, Step, optimizer_for, training

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


def _language_model(device: torch.device, batch: int) -> Step:
    with torch.device(device):
        model = Encoder(512, 6)
        tokens = torch.randint(0, VOCABULARY, (batch, 128))

    def loss_of(tokens: torch.Tensor) -> torch.Tensor:
        logits = model(tokens)[:, :-1].flatten(0, 1).float()
        return F.cross_entropy(logits, tokens[:, 1:].flatten())

    optimizer = optimizer_for(model.parameters(), device)
    return training(loss_of, (tokens,), optimizer, autocast=True)


STEPS: dict[str, Build] = {"encoder-train-b32": _language_model}
