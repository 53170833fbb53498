"""Wall time of a loop's last iterations, synchronized at both ends and not in between."""

from __future__ import annotations

import json
import time
from pathlib import Path

import torch


class Clock:
    """Call `tick()` at the top of each iteration and `stop()` after the loop.

    The first `skip` iterations are not timed: warm-up, capture, the clock's own start.
    """

    def __init__(self, skip: int) -> None:
        self._skip = skip
        self._seen = 0
        self._begun = 0.0

    def tick(self) -> None:
        if self._seen == self._skip:
            self._begun = self._now()
        self._seen += 1

    def stop(self, result: Path) -> None:
        """Writes `iteration_ms` to `result` as JSON."""
        timed = self._seen - self._skip
        iteration_ms = (self._now() - self._begun) * 1e3 / timed
        result.write_text(json.dumps({"iteration_ms": iteration_ms, "iterations": timed}))

    @staticmethod
    def _now() -> float:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter()
