"""Ends the scripts of all ranks at the same step: one that goes on alone waits in a collective."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from typing import Any

from launchscope.runner.child.facts.torch_types import Torch, Value

# Ranks that take the same steps are measured at the same one, nearly at the same time.
_SOON_S, _POLL_S = 3.0, 0.005


def stop_together(
    torch: Torch, stop_file: str, stop: Callable[[], None], may_stop: Callable[[], bool]
) -> None:
    """Calls `stop` once the file is there: now, or at a later call of a model where another rank
    needs more steps, which it can only make together with this one."""
    give_up = time.monotonic() + _SOON_S
    while not os.path.exists(stop_file) and time.monotonic() < give_up:
        time.sleep(_POLL_S)
    if os.path.exists(stop_file):
        stop()
        return
    original: Any = torch.nn.Module.__call__

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Value:
        if may_stop() and os.path.exists(stop_file):
            setattr(torch.nn.Module, "__call__", original)  # noqa: B010
            stop()
        return original(*args, **kwargs)

    setattr(torch.nn.Module, "__call__", call)  # noqa: B010
