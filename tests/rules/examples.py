"""The examples in the pages of the rules, and the names that they take for granted."""

from __future__ import annotations

import re
from collections.abc import Callable
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import launchscope
from launchscope.rules import Rule
from tests.rules.cases import tests_of


def example(rule: Rule, version: str) -> str:
    """The code of one version, `Before` or `After`."""
    found = re.search(rf"^## {version}\n((?: {{4}}.*\n|\n)+)", rule.page, re.MULTILINE)
    assert found is not None, rule.code
    return dedent(found[1]).strip("\n")


def needs_gpu(rule: Rule, version: str) -> bool:
    names = (
        "torch.cuda.CUDAGraph(",
        "torch.cuda.graph(",
        "torch.cuda.stream(",
        "is_current_stream_capturing(",
        'device="cuda"',
    )
    return any(name in example(rule, version) for name in names)


def names(device: str) -> dict[str, Any]:
    """What the code around an example has defined, with small tensors of equal values each time."""
    torch.manual_seed(0)
    model = nn.Linear(8, 8, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [
        (torch.randn(16, 8, device=device), torch.randn(16, 8, device=device)) for _ in range(3)
    ]
    x, y = batches[-1]
    q, k, v = torch.randn(3, 2, 4, 6, 16, device=device)
    losses = torch.rand(16, device=device)
    a, b = (torch.ones((), device=device, requires_grad=True) for _ in range(2))
    capture: Callable[[int], object] = torch.empty
    known = {
        "a": a, "b": b, "x": x, "y": y, "q": q, "k": k, "v": v,
        "batches": batches, "losses": losses, "mask": losses > 0.5, "device": device,
        "model": model, "optimizer": optimizer,
        "static_x": torch.zeros_like(x), "static_y": torch.zeros_like(y),
        "sequences": [torch.ones(n, dtype=torch.int64) for n in (97, 101, 88)],
        "capture": capture, "history": [],
        "dataset": TensorDataset(torch.ones(32, 8), torch.ones(32, 4)),
        "gradient": torch.ones(4, device=device),
        "torch": torch, "nn": nn, "F": F, "dist": dist, "DataLoader": DataLoader,
        "launchscope": SimpleNamespace(step=launchscope.step),
    }  # fmt: skip
    known["loss"] = F.mse_loss(model(x), y)
    if device == "cuda":  # libraries are loaded, as after a warm-up
        with torch.cuda.stream(torch.cuda.Stream()):
            F.mse_loss(model(x), y).backward()
            optimizer.zero_grad()
        known["graph"] = torch.cuda.CUDAGraph()
        known["static_x"].copy_(x)
        known["static_y"].copy_(y)
        torch.cuda.synchronize()
    return known


def run(rule: Rule, version: str, device: str) -> dict[str, Any]:
    """All names after the example has run."""
    known = names(device)
    exec(compile(example(rule, version), f"{rule.code} {version}", "exec"), known)
    known["weight"] = known["model"].weight
    return known


def assert_same(rule: Rule, before: dict[str, Any], after: dict[str, Any]) -> None:
    for name in getattr(tests_of(rule), "SAME", ()):
        expected, found = (torch.as_tensor(names[name]).detach() for names in (before, after))
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5, check_device=False)
