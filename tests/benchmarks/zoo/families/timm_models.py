"""timm: image models, random weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.benchmarks.zoo.families.vision import classifier
from tests.benchmarks.zoo.workload import Family, Workload


def _model(name: str) -> Callable[[], Any]:
    def make() -> Any:
        import timm

        return timm.create_model(name, pretrained=False)

    return make


def _workload(name: str, kind: str, batch: int) -> Workload:
    return Workload(f"timm-{name}-{kind}-b{batch}", kind, batch, classifier(_model(name), kind))


FAMILY = Family(
    "timm",
    "timm",
    (
        _workload("efficientnet_b0", "train", 256),
        _workload("vit_tiny_patch16_224", "train", 32),
        _workload("vit_small_patch16_224", "inference", 1),
        _workload("vit_base_patch16_224", "inference", 64),
        _workload("swin_tiny_patch4_window7_224", "train", 16),
        _workload("mixer_s32_224", "inference", 8),
        _workload("regnety_008", "train", 64),
    ),
)
