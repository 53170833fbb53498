"""make_graphed_callables on a model with reentrant checkpoints, which refuse autograd.grad."""

from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(16, 16)
        self.blocks = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = checkpoint_sequential(self.blocks, 2, self.head(x), use_reentrant=True)
        return out


net: Any = torch.cuda.make_graphed_callables(Deep().cuda(), (torch.randn(8, 16, device="cuda"),))
for _ in range(50):
    net(torch.randn(8, 16, device="cuda")).sum().backward()
