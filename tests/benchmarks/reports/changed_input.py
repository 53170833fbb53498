"""reduce-overhead graphs nothing, because the compiled function changes an input in place."""

import torch


@torch.compile(mode="reduce-overhead")
def decode(cache: torch.Tensor, token: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    cache.mul_(0.9).add_(token)
    return torch.tanh(cache @ weight)


cache, weight = torch.zeros(4, 32, device="cuda"), torch.randn(32, 32, device="cuda")
with torch.no_grad():
    for _ in range(100):
        out = decode(cache, torch.randn(4, 32, device="cuda"), weight)
