"""What is run, where, and how many steps each pass takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Which kind of evidence a recording holds: a GPU run, a run without a GPU, a foreign trace.
Mode = Literal["gpu", "rehearsal", "trace"]


@dataclass(frozen=True)
class Target:
    """What is profiled: a script, a module (`-m`), or a callable (`measure`)."""

    kind: Literal["script", "module", "callable", "trace"]
    name: str
    args: tuple[str, ...] = ()


@dataclass(frozen=True)
class Environment:
    """Where a measurement was made. None where it does not apply."""

    device: str | None = None
    torch: str | None = None
    cuda: str | None = None
    driver: str | None = None
    python: str | None = None
    platform: str | None = None
    world_size: int = 1
    git: str | None = None
    recorded_at: str | None = None  # UTC, ISO 8601
    launchscope: str | None = None


@dataclass(frozen=True)
class Schedule:
    """How many steps each pass takes; 0 leaves the pass out."""

    warmup: int = 10
    timing: int = 30
    trace: int = 5
    inspect: int = 3
    replay: int = 30
    verify: int = 4
    sizes: int = 0  # steps whose input shapes are counted
    adoption: int = 0  # steps after a way to adopt graphs was put in, before it is timed
    step_from: Literal["auto", "marker", "optimizer", "forward", "none"] = "auto"
    full: bool = False
