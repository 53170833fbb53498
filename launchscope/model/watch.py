"""The Watch: what the GPU waited for over the whole run of a script."""

from __future__ import annotations

from dataclasses import dataclass

from launchscope.model.target import Environment, Target


@dataclass(frozen=True)
class Window:
    """Metrics of a Profile, and the number of `iterations` of the run that it stands for."""

    iteration_ms: float
    launch_overhead_ms: float
    data_wait_ms: float
    sync_wait_ms: float
    iterations: float = 0.0


@dataclass(frozen=True)
class Watch:
    """The run since its step was found: `seconds` are without the `cost_s` of watching."""

    target: Target
    environment: Environment
    threshold_pct: float
    steps: int = 0
    seconds: float = 0.0
    cost_s: float = 0.0
    windows: tuple[Window, ...] = ()
    schema: str = "launchscope/watch/1"

    def share_pct(self, key: str = "launch_overhead_ms") -> float:
        waited_ms: float = sum(one.iterations * getattr(one, key) for one in self.windows)
        return waited_ms / 10 / max(self.seconds, 1e-9)
