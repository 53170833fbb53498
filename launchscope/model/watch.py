"""The Watch: what the GPU waited for over the whole run of a script."""

from __future__ import annotations

from dataclasses import dataclass

from launchscope.model.target import Environment, Target


@dataclass(frozen=True)
class Watch:
    """The run since its step was found: `seconds` are without the `cost_s` of watching. Each window
    holds metrics of the Profile, and the number of `iterations` of the run that it stands for."""

    target: Target
    environment: Environment
    threshold_pct: float
    steps: int = 0
    seconds: float = 0.0
    cost_s: float = 0.0
    windows: tuple[dict[str, float], ...] = ()
    schema: str = "launchscope/watch/1"

    def share_pct(self, key: str = "launch_overhead_ms") -> float:
        waited_ms = sum(one.get("iterations", 0.0) * one.get(key, 0.0) for one in self.windows)
        return waited_ms / 10 / max(self.seconds, 1e-9)
