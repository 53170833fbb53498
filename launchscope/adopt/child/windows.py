"""How long windows of steps take."""

from __future__ import annotations

import time
from typing import Any

from launchscope.adopt.record import WINDOW
from launchscope.runner.child.facts.torch_types import Torch


class Windows:
    """Between moments of the stream that the script uses, or, without a GPU, of the host."""

    def __init__(self, torch: Torch):
        self._torch = torch
        self._moments: list[tuple[int, Any]] = []

    def note(self, units: int) -> bool:
        """Whether a window ends after so many units."""
        if self._moments and units // WINDOW <= self._moments[-1][0] // WINDOW:
            return False
        self._moments.append((units, self._moment()))
        return True

    def _moment(self) -> Any:
        torch = self._torch
        if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def unit_ms(self) -> tuple[float, ...]:
        """Milliseconds per unit of each window but the first, which has the end of the comparison
        in it."""
        if any(not isinstance(moment, float) for _, moment in self._moments):
            self._torch.cuda.synchronize()
        found = []
        for (units, begin), (later, end) in zip(self._moments[1:], self._moments[2:]):
            took = (end - begin) * 1e3 if isinstance(begin, float) else begin.elapsed_time(end)
            found.append(took / (later - units))
        return tuple(found)
