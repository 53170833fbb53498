"""What a process is asked to do."""

from __future__ import annotations

from dataclasses import dataclass

from launchscope.model import Schedule


@dataclass(frozen=True)
class Plan:
    """What this process is asked to do: which passes, and what happens after the last.

    `own_process` False: the process belongs to someone else (`measure`) and is never ended.
    `adopt` names a way to adopt graphs, put in after the warm-up.
    """

    passes: tuple[str, ...]
    schedule: Schedule
    stop_after: bool
    allow_captures: bool = True
    side_stream: bool = True
    own_process: bool = True
    adopt: str | None = None
