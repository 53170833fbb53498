"""A function that returns .item() fails when it is graphed."""

import torch


def total(x: torch.Tensor) -> float:
    return x.sum().item()


x = torch.randn(3, 3, device="cuda")
total(x)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    value = total(x)
graph.replay()
