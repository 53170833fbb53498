"""reduce-overhead: the output of a call is used after the next one has overwritten it."""

import torch


@torch.compile(mode="reduce-overhead")
def square(x: torch.Tensor) -> torch.Tensor:
    return torch.matmul(x, x)


x = torch.randn(10, 10, device="cuda")
with torch.no_grad():
    for _ in range(100):
        first = square(x)
        second = square(x)
        total = first + second
