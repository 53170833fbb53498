"""make_graphed_callables on torch.prod, whose backward waits for the number of zeros."""

from typing import Any

import torch
from torch import nn


class Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.prod(self.layer(x), 1)


net: Any = torch.cuda.make_graphed_callables(
    Product().cuda(), (torch.randn(16, 32, device="cuda"),)
)
for _ in range(50):
    net(torch.randn(16, 32, device="cuda")).sum().backward()
