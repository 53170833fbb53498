"""How long windows of iterations take."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

from launchscope.adopt.record import WINDOW
from launchscope.runner.child.facts.torch_types import Torch


class Windows:
    """Between moments of the stream that the script uses, or, without a GPU, of the host."""

    def __init__(self, torch: Torch):
        self._torch = torch
        self._moments: list[Any] = []

    def begin_iteration(self, number: int) -> None:
        if number % WINDOW == 0:
            self._moments.append(self._moment())

    def _moment(self) -> Any:
        torch = self._torch
        if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def iteration_ms(self) -> tuple[float, ...]:
        """Of each whole window, per iteration."""
        if self._moments and not isinstance(self._moments[-1], float):
            self._torch.cuda.synchronize()
            pairs = pairwise(m for m in self._moments if not isinstance(m, float))
            return tuple(begin.elapsed_time(end) / WINDOW for begin, end in pairs)
        return tuple((end - begin) * 1e3 / WINDOW for begin, end in pairwise(self._moments))
