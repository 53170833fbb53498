"""How long the workers of data loaders have computed, as Linux says of their processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_NAME = "pt_data_worker"  # torch calls their main threads so


@dataclass(frozen=True)
class WorkerTimes:
    """CPU time in nanoseconds: of the main thread of each running worker, by process, and of all
    child processes that have ended and been waited for."""

    running: Mapping[int, int] = field(default_factory=dict)
    ended: int = 0


def worker_times() -> WorkerTimes:
    processes = sys.modules.get("multiprocessing.process")
    # Not `active_children()`, which takes the status of those that have ended.
    children = tuple(getattr(processes, "_children", ()))
    running = {child.pid: ns for child in children if (ns := _cpu_ns(child.pid)) is not None}
    of_all = os.times()  # in hundredths of a second
    return WorkerTimes(running, round((of_all.children_user + of_all.children_system) * 1e9))


def between(before: WorkerTimes, after: WorkerTimes) -> tuple[int, int]:
    """How many workers there were, and the CPU time of them all in between; (0, 0) where they are
    not as many as before. Where an epoch ended, others have taken their place: then the time of
    those that ended is that of all child processes that did, and may be too long."""
    if len(before.running) != len(after.running):
        return 0, 0
    ns = sum(after.running.values()) - sum(before.running.values())
    if before.running.keys() != after.running.keys():
        ns += after.ended - before.ended
    return len(after.running), ns


def _cpu_ns(pid: int | None) -> int | None:
    folder = Path("/proc", str(pid))
    with suppress(OSError, ValueError, IndexError):
        if (folder / "comm").read_text().strip() == _NAME:
            return int((folder / "schedstat").read_text().split()[0])
    return None
