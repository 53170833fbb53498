"""What modes of ours see, and what a script notices of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from launchscope.runner.child.facts.torch_modes import (
    dispatch_mode,
    see_modes_after_inference,
)

Call = Callable[..., Any]


def seeing(seen: list[str]) -> Call:
    def on_call(func: Any, run: Any, args: Any, kwargs: Any) -> Any:
        seen.append(func.__name__.partition(".")[0])
        return run(*args, **kwargs)

    return on_call


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
