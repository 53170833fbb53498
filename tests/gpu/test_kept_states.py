"""The rounding of kept states, from which the verification of a patch takes the noise, on a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from launchscope.adopt import agreement
from launchscope.adopt.child.kept_states import KeptStates

pytestmark = pytest.mark.gpu

_RUNS = 3  # that tell the noise


def gradients(model: nn.Module, x: Tensor) -> list[Tensor]:
    model.zero_grad()
    model(x).square().mean().backward()
    return [
        parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None
    ]


def furthest(reference: list[Tensor], others: list[list[Tensor]]) -> list[float]:
    """By parameter, the largest difference relative to the gradient."""
    return [
        max(float((other[at] - one).norm() / one.norm()) for other in others)
        for at, one in enumerate(reference)
    ]


def test_a_convolution_of_another_precision_is_within_the_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A generator and a critic: the gradient of the last bias of the first is a sum of many terms
    that cancel out. Kernels in TF32 and in float32, of which cuDNN may choose either."""
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.ConvTranspose2d(64, 64, 4, 2, 1), nn.BatchNorm2d(64), nn.LeakyReLU(0.2)),
        *(nn.Conv2d(64, 1, 3, 1, 1), nn.Tanh(), nn.Conv2d(1, 16, 3, 2, 1), nn.LeakyReLU(0.2)),
        *(nn.Flatten(), nn.Linear(4096, 1)),
    ).cuda()
    worst = 0.0
    for unit in range(1, 21):
        x = torch.randn(64, 64, 16, 16, device="cuda")
        tensors = dict(model.named_parameters())
        KeptStates(torch, str(tmp_path), False, 1, 30).exchange(unit, tensors)
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
        eager = gradients(model, x)
        rounded = []
        for rounds in range(1, _RUNS + 1):
            KeptStates(torch, str(tmp_path), True, 1, 30, rounds=rounds).exchange(unit, tensors)
            rounded.append(gradients(model, x))
        KeptStates(torch, str(tmp_path), True, 1, 30).exchange(unit, tensors)
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
        other = gradients(model, x)
        shares = [
            off / (agreement._NOISE_FACTOR * noise)
            for off, noise in zip(furthest(eager, [other]), furthest(eager, rounded))
        ]
        worst = max(worst, *shares)
    print(f"at most {worst:.2f} of what is allowed")
    assert 0 < worst < 1
