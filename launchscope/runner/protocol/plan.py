"""What a child process is asked to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from launchscope.model import Schedule, Target


@dataclass(frozen=True)
class Plan:
    """Which passes a process runs, and what happens after the last one."""

    target: Target
    passes: tuple[str, ...]
    schedule: Schedule
    stop_after: bool  # end the script after the last pass
    allow_captures: bool = True
    side_stream: bool = True
    own_process: bool = True  # False: the process of the caller of `measure`, never ended
    strategy: str | None = None  # the way to adopt graphs that is applied after the warm-up
    earlier: dict[str, Any] = field(default_factory=dict)  # results of earlier runs, as JSON data
    parent_pid: int | None = None  # the child ends when this process does; None: it does not
    interrupt_signal: int | None = None  # raises KeyboardInterrupt in the child
