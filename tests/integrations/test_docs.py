"""The recipe for Accelerate runs as docs/trainers.md shows it, and is replayed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from launchscope import graphed
from tests.graphed.emulation import EmulatedGpu, gpu

__all__ = ["gpu"]
PAGE = Path(__file__).parents[2] / "docs" / "trainers.md"


def test_the_recipe_for_accelerate_trains_and_is_replayed(gpu: EmulatedGpu, tmp_path: Path) -> None:
    accelerate: Any = pytest.importorskip("accelerate")
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    data = torch.utils.data.TensorDataset(torch.randn(320, 32), torch.randint(4, (320,)))
    space: dict[str, Any] = {
        "__name__": "__main__",
        "torch": torch,
        "nn": nn,
        "graphed": graphed,
        "accelerator": accelerate.Accelerator(cpu=True),
        "model": model,
        "optimizer": optimizer,
        "loader": torch.utils.data.DataLoader(data, batch_size=16),
        "scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20),
    }
    (recipe,) = re.findall(
        r"^```py\n(model, optimizer.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    path = tmp_path / "recipe.py"
    path.write_text(recipe)
    exec(compile(recipe, str(path), "exec"), space)
    for x, y in space["loader"]:
        space["step"](x, y)
        space["scheduler"].step()
    stats = space["step"].stats
    assert stats.replayed >= 14
    assert {reason.code for reason in stats.reasons} == {"warmup"}
