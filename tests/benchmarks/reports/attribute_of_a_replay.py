"""A forward keeps a value as an attribute; replays do not assign it, as they run no Python."""

import torch
from torch import nn


class Keeps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)
        self.hidden = torch.zeros(2, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.hidden = self.first(x)
        out: torch.Tensor = self.second(self.hidden)
        return out


net, x = Keeps().cuda(), torch.ones(2, 4, device="cuda")
net(x)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    out = net(x)
net.hidden = torch.full((2, 8), 100.0, device="cuda")
for _ in range(50):
    x.add_(10)
    graph.replay()
print(net.hidden)
