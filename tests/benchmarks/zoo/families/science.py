"""A physics-informed network (second derivatives), deep Q-learning, a diffusion UNet."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from tests.benchmarks.zoo.workload import (
    Family,
    Step,
    Workload,
    inference,
    optimizer_for,
    training,
)


def _pinn(width: int, layers: int) -> Callable[[torch.device, int], Step]:
    """Burgers' equation at random points: u_t + u u_x = 0.01 u_xx."""

    def build(device: torch.device, batch: int) -> Step:
        parts: list[nn.Module] = [nn.Linear(2, width), nn.Tanh()]
        for _ in range(layers):
            parts += [nn.Linear(width, width), nn.Tanh()]
        model = nn.Sequential(*parts, nn.Linear(width, 1)).to(device)
        points = torch.rand(batch, 2, device=device, requires_grad=True)

        def slope(of: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
            found = torch.autograd.grad(of.sum(), points, create_graph=True)
            first: torch.Tensor = found[0]
            return first

        def loss_of(points: torch.Tensor) -> torch.Tensor:
            u = model(points)
            first = slope(u, points)
            second = slope(first[:, 0], points)[:, 0]
            residual: torch.Tensor = first[:, 1] + u[:, 0] * first[:, 0] - 0.01 * second
            return residual.square().mean()

        optimizer = optimizer_for(model.parameters(), device)
        inner = training(loss_of, (points,), optimizer)

        def run(points: torch.Tensor) -> None:
            points.grad = None
            inner.run(points)

        return Step(run, (points,))

    return build


def _q_network(image: bool) -> nn.Module:
    if not image:
        return nn.Sequential(
            nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4)
        )
    return nn.Sequential(
        nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
        nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(),
        nn.Linear(512, 4),
    )  # fmt: skip


def _dqn(kind: str, *, image: bool = False) -> Callable[[torch.device, int], Step]:
    shape = (4, 84, 84) if image else (8,)

    def build(device: torch.device, batch: int) -> Step:
        with torch.device(device):
            model, target = _q_network(image), _q_network(image)
            before, after = torch.randn(batch, *shape), torch.randn(batch, *shape)
            action, reward = torch.randint(0, 4, (batch, 1)), torch.randn(batch)
        if kind == "inference":
            return inference(lambda seen: model(seen).argmax(dim=1), (before,))

        def loss_of(
            before: torch.Tensor, action: torch.Tensor, reward: torch.Tensor, after: torch.Tensor
        ) -> torch.Tensor:
            with torch.no_grad():
                wanted = reward + 0.99 * target(after).max(dim=1).values
            return F.smooth_l1_loss(model(before).gather(1, action).squeeze(1), wanted)

        inner = training(loss_of, (before, action, reward, after),
                         optimizer_for(model.parameters(), device))  # fmt: skip
        live = [p.detach() for p in model.parameters()]
        slow = [p.detach() for p in target.parameters()]

        def run(*inputs: torch.Tensor) -> None:
            inner.run(*inputs)
            torch._foreach_lerp_(slow, live, 0.005)

        return Step(run, inner.inputs)

    return build


class Residual(nn.Module):
    """Two convolutions, the time's embedding added between them."""

    def __init__(self, inner: int, outer: int, time: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, inner), nn.GroupNorm(8, outer)
        self.conv1 = nn.Conv2d(inner, outer, 3, padding=1)
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1)
        self.time = nn.Linear(time, outer)
        self.skip = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        h = self.conv1(F.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        out: torch.Tensor = self.skip(x) + self.conv2(F.silu(self.norm2(h)))
        return out


class UNet(nn.Module):
    """Predicts the noise in an image, three resolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        w, t = width, 4 * width
        self.width = width
        self.embed = nn.Sequential(nn.Linear(w, t), nn.SiLU(), nn.Linear(t, t))
        self.stem = nn.Conv2d(3, w, 3, padding=1)
        self.down = nn.ModuleList([Residual(w, w, t), Residual(w, 2 * w, t)])
        self.middle = Residual(2 * w, 2 * w, t)
        self.up = nn.ModuleList([Residual(4 * w, w, t), Residual(2 * w, w, t)])
        self.head = nn.Conv2d(w, 3, 3, padding=1)

    def forward(self, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        half = self.width // 2
        rates = torch.exp(torch.arange(half, device=x.device) * (-9.2 / half))
        angles = step[:, None].float() * rates
        time = self.embed(torch.cat([angles.sin(), angles.cos()], dim=1))
        x, kept = self.stem(x), []
        for block in self.down:
            x = block(x, time)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.middle(x, time)
        for block in self.up:
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
            x = block(torch.cat([x, kept.pop()], dim=1), time)
        out: torch.Tensor = self.head(x)
        return out


def _diffusion(width: int, size: int, kind: str) -> Callable[[torch.device, int], Step]:
    def build(device: torch.device, batch: int) -> Step:
        with torch.device(device):
            model = UNet(width)
            images, step = torch.randn(batch, 3, size, size), torch.randint(0, 1000, (batch,))
            mix = torch.linspace(0.99, 0.01, 1000)
        if kind == "inference":
            return inference(model.eval(), (images, step))

        def loss_of(images: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
            share = mix[step][:, None, None, None]
            noise = torch.randn_like(images)
            seen = share.sqrt() * images + (1 - share).sqrt() * noise
            return F.mse_loss(model(seen, step), noise)

        optimizer = optimizer_for(model.parameters(), device)
        return training(loss_of, (images, step), optimizer)

    return build


FAMILY = Family(
    "science",
    None,
    (
        Workload("pinn-train-n4096", "train", 4096, _pinn(64, 6)),
        Workload("pinn-train-n262144", "train", 262_144, _pinn(128, 6)),
        Workload("dqn-train-b64", "train", 64, _dqn("train")),
        Workload("dqn-image-train-b256", "train", 256, _dqn("train", image=True)),
        Workload("dqn-inference-b1", "inference", 1, _dqn("inference")),
        Workload("unet-train-b4", "train", 4, _diffusion(64, 32, "train")),
        Workload("unet-train-b32", "train", 32, _diffusion(64, 32, "train")),
        Workload("unet-train-b64-s64", "train", 64, _diffusion(128, 64, "train")),
        Workload("unet-inference-b1", "inference", 1, _diffusion(64, 32, "inference")),
    ),
)
