"""What modes of ours see, and what a script notices of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from launchscope.runner.child.facts.torch_modes import (
    dispatch_mode,
    function_mode,
    see_modes_after_inference,
)

Call = Callable[..., Any]


def runs(func: Any, run: Any, args: Any, kwargs: Any) -> Any:
    return run(*args, **kwargs)


def seeing(seen: list[str]) -> Call:
    def on_call(func: Any, run: Any, args: Any, kwargs: Any) -> Any:
        seen.append(func.__name__.partition(".")[0])
        return run(*args, **kwargs)

    return on_call


def ops_of(step: Callable[[], object]) -> list[str]:
    seen: list[str] = []
    with function_mode(runs), dispatch_mode(seeing(seen)):
        step()
    return seen


def test_ops_are_seen_although_inference_mode_begins_or_ends_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inference: Any = torch.inference_mode
    monkeypatch.setattr(inference, "__exit__", inference.__exit__)
    see_modes_after_inference(torch)
    x, seen = torch.ones(2), list[str]()
    mode = dispatch_mode(seeing(seen))
    with torch.inference_mode():
        x.sin()
        mode.__enter__()
        x.cos()
    x.tan()
    with torch.inference_mode():
        x.exp()
        mode.__exit__(None, None, None)
    x.log()
    assert seen == ["cos", "tan", "exp"]


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.mul(2)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.add(gradient)


def test_ops_of_functions_and_backwards_are_seen() -> None:
    x = torch.ones(2, requires_grad=True)

    def step() -> None:
        checkpoint(Double.apply, x.sin(), use_reentrant=False).sum().backward()

    assert {"sin", "mul", "sum", "add", "cos"} < set(ops_of(step))
