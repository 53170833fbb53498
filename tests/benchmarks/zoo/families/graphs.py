"""Graph networks through torch_geometric, whole graph per step, random edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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

CLASSES = 16
EDGES_PER_NODE = 10


def _sage(width: int) -> nn.Module:
    from torch_geometric.nn import SAGEConv

    return _Network([SAGEConv(width, width) for _ in range(3)], width)


def _gin(width: int) -> nn.Module:
    from torch_geometric.nn import GINConv

    def part() -> nn.Module:
        return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    return _Network([GINConv(part()) for _ in range(3)], width)


class _Network(nn.Module):
    def __init__(self, layers: list[Any], width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, features: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            features = F.relu(layer(features, edges))
        logits: torch.Tensor = self.head(features)
        return logits


def _whole_graph(
    make: Callable[[int], nn.Module], width: int, kind: str
) -> Callable[[torch.device, int], Step]:
    """The batch is the number of nodes."""

    def build(device: torch.device, batch: int) -> Step:
        with torch.device(device):
            model = make(width)
            features = torch.randn(batch, width)
            edges = torch.randint(0, batch, (2, EDGES_PER_NODE * batch))
            labels = torch.randint(0, CLASSES, (batch,))
        if kind == "inference":
            return inference(model.eval(), (features, edges))

        def loss_of(
            features: torch.Tensor, edges: torch.Tensor, labels: torch.Tensor
        ) -> torch.Tensor:
            return F.cross_entropy(model(features, edges), labels)

        optimizer = optimizer_for(model.parameters(), device)
        return training(loss_of, (features, edges, labels), optimizer)

    return build


FAMILY = Family(
    "graphs",
    "torch_geometric",
    (
        Workload("sage-train-n2000", "train", 2_000, _whole_graph(_sage, 64, "train")),
        Workload("sage-inference-n2000", "inference", 2_000, _whole_graph(_sage, 64, "inference")),
        Workload("sage-train-n50000", "train", 50_000, _whole_graph(_sage, 128, "train")),
        Workload("gin-train-n2000", "train", 2_000, _whole_graph(_gin, 64, "train")),
        Workload("gin-train-n200000", "train", 200_000, _whole_graph(_gin, 128, "train")),
    ),
)
