"""The Watch: what the GPU waited for over the whole run of a script."""

from __future__ import annotations

from dataclasses import dataclass

from launchscope.model.target import Environment, Target


@dataclass(frozen=True)
class WatchWindow:
    """What an iteration of one window waited for, and how many of the run it stands for."""

    iteration_ms: float
    launch_ms: float
    data_ms: float
    sync_ms: float
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
    windows: tuple[WatchWindow, ...] = ()
    schema: str = "launchscope/watch/1"

    def waited_s(self, cause: str) -> float:
        """How long the GPU waited for "launch", "data" or "sync"."""
        return sum(w.iterations * float(getattr(w, f"{cause}_ms")) for w in self.windows) / 1000

    def share_pct(self, cause: str) -> float:
        return 100 * self.waited_s(cause) / max(self.seconds, 1e-9)
