"""Small and wide MLPs, and a DLRM-like recommender with one embedding table per feature."""

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


def mlp(width: int, layers: int) -> nn.Sequential:
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(width, 10))


class Recommender(nn.Module):
    """Dense features and categories, pairwise products, a click probability."""

    def __init__(self, tables: int, rows: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(rows, width) for _ in range(tables)])
        self.dense = nn.Sequential(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, width))
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(pairs + width, 256), nn.ReLU(), nn.Linear(256, 1))
        first, second = torch.triu_indices(tables + 1, tables + 1, offset=1)
        self.register_buffer("pairs", first * (tables + 1) + second)

    def forward(self, numbers: torch.Tensor, categories: torch.Tensor) -> torch.Tensor:
        dense = self.dense(numbers)
        found = [table(categories[:, i]) for i, table in enumerate(self.tables)]
        stacked = torch.stack([dense, *found], dim=1)
        products = (stacked @ stacked.transpose(1, 2)).flatten(1)
        assert isinstance(self.pairs, torch.Tensor)
        chosen = products.index_select(1, self.pairs)
        logits: torch.Tensor = self.top(torch.cat([dense, chosen], dim=1))
        return logits.squeeze(1)


def _mlp(width: int, layers: int, kind: str) -> Callable[[torch.device, int], Step]:
    def build(device: torch.device, batch: int) -> Step:
        with torch.device(device):
            model = mlp(width, layers)
            x, y = torch.randn(batch, width), torch.randint(0, 10, (batch,))
        if kind == "inference":
            return inference(model.eval(), (x,))

        def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return F.cross_entropy(model(x), y)

        return training(loss_of, (x, y), optimizer_for(model.parameters(), device))

    return build


def _recommender(rows: int, width: int, kind: str) -> Callable[[torch.device, int], Step]:
    tables = 26

    def build(device: torch.device, batch: int) -> Step:
        with torch.device(device):
            model = Recommender(tables, rows, width)
            numbers = torch.randn(batch, 13)
            categories = torch.randint(0, rows, (batch, tables))
            clicks = torch.rand(batch).round()
        if kind == "inference":
            return inference(model.eval(), (numbers, categories))

        def loss_of(
            numbers: torch.Tensor, categories: torch.Tensor, clicks: torch.Tensor
        ) -> torch.Tensor:
            return F.binary_cross_entropy_with_logits(model(numbers, categories), clicks)

        optimizer = optimizer_for(model.parameters(), device, sgd=True)
        return training(loss_of, (numbers, categories, clicks), optimizer)

    return build


FAMILY = Family(
    "tabular",
    None,
    (
        Workload("mlp-train-b64", "train", 64, _mlp(256, 3, "train")),
        Workload("mlp-train-b4096", "train", 4096, _mlp(1024, 8, "train")),
        Workload("mlp-train-b8192", "train", 8192, _mlp(2048, 4, "train")),
        Workload("mlp-inference-b1", "inference", 1, _mlp(512, 6, "inference")),
        Workload("mlp-inference-b4096", "inference", 4096, _mlp(2048, 6, "inference")),
        Workload("dlrm-train-b512", "train", 512, _recommender(10_000, 16, "train")),
        Workload("dlrm-train-b16384", "train", 16384, _recommender(10_000, 64, "train")),
        Workload("dlrm-train-big-tables-b2048", "train", 2048, _recommender(200_000, 64, "train")),
        Workload("dlrm-inference-b64", "inference", 64, _recommender(10_000, 16, "inference")),
    ),
)
