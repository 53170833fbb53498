"""Capturing a diffusion model: the embedding of the time copies its frequencies from the CPU."""

import torch
from torch import nn


def embed_time(time: torch.Tensor, width: int) -> torch.Tensor:
    rates = torch.exp(-9.2 * torch.arange(width // 2) / (width // 2)).to(time.device)
    angles = time[:, None].float() * rates
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


body, net = nn.Linear(32, 64).cuda(), nn.Linear(64, 64).cuda()
noisy, time = torch.randn(8, 64, device="cuda"), torch.randint(0, 1000, (8,), device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.no_grad():
    net(noisy + body(embed_time(time, 32)))
    with torch.cuda.graph(graph):
        predicted = net(noisy + body(embed_time(time, 32)))
for _ in range(50):
    graph.replay()
