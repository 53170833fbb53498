"""torchvision: classifiers on synthetic images, random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from tests.benchmarks.zoo.workload import (
    Family,
    Step,
    Workload,
    inference,
    optimizer_for,
    training,
)

Builder = Callable[[torch.device, int], Step]


def classifier(make: Callable[[], Any], kind: str, *, sgd: bool = False) -> Builder:
    """Builds a step of an image classifier that `make()` constructs, for 224 x 224 inputs."""

    def build(device: torch.device, batch: int) -> Step:
        with torch.device(device):
            model = make()
            images = torch.randn(batch, 3, 224, 224)
            labels = torch.randint(0, 1000, (batch,))
        if kind == "inference":
            return inference(model.eval(), (images,))
        optimizer = optimizer_for(model.parameters(), device, sgd=sgd)

        def loss_of(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            return F.cross_entropy(model(images), labels)

        return training(loss_of, (images, labels), optimizer)

    return build


def _model(name: str) -> Callable[[], Any]:
    def make() -> Any:
        import torchvision

        return torchvision.models.get_model(name, weights=None)

    return make


def _workload(name: str, kind: str, batch: int, *, sgd: bool = False) -> Workload:
    return Workload(f"{name}-{kind}-b{batch}", kind, batch, classifier(_model(name), kind, sgd=sgd))


FAMILY = Family(
    "vision",
    "torchvision",
    (
        _workload("resnet18", "train", 16, sgd=True),
        _workload("resnet18", "train", 128, sgd=True),
        _workload("resnet50", "train", 16, sgd=True),
        _workload("resnet50", "train", 32, sgd=True),
        _workload("resnet50", "train", 64, sgd=True),
        _workload("resnet50", "inference", 1),
        _workload("resnet50", "inference", 16),
        _workload("resnet50", "inference", 128),
        _workload("mobilenet_v3_small", "inference", 1),
        _workload("mobilenet_v2", "train", 32),
        _workload("efficientnet_b0", "train", 64),
        _workload("vit_b_16", "train", 32),
        _workload("vit_b_16", "inference", 4),
        _workload("convnext_tiny", "train", 16),
    ),
)
