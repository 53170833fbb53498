"""What a captured step leaves for the passes after it, while the process lives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from launchscope.runner.child.capture.capture import CapturedStep
from launchscope.runner.child.capture.state import DeviceState, OptimizerFlags


@dataclass
class LiveReplay:
    """`stubs` is not None if blocking operations were left out of the graph."""

    step: CapturedStep
    state: DeviceState
    flags: OptimizerFlags
    kept: list[Any]  # memory the graph reads
    stubs: Any = None

    def release(self) -> None:
        """Give up the graph and its memory; no replay after this."""
        self.state.forget()
        self.step.graph.reset()
        self.kept.clear()
