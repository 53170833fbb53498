"""What is profiled, and on which machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Target:
    """What is profiled: a script, a module (`-m`), or a callable (`measure`). `path`: of the
    script, or of the folder in which the module ran, from the root of the repository around it.
    `python`: the interpreter that was named; `ranks`: processes of one machine that run it."""

    kind: Literal["script", "module", "callable", "trace"]
    name: str
    args: tuple[str, ...] = ()
    path: str | None = None
    python: str | None = None
    ranks: int | None = None


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
