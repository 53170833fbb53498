"""How long the workers of data loaders have computed, as Linux says of their processes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

_NAME = "pt_data_worker"  # torch calls their main threads so
# CPU time in nanoseconds of the main thread of each running worker, by process.
WorkerTimes: TypeAlias = Mapping[int, int]


def worker_times() -> WorkerTimes:
    processes = sys.modules.get("multiprocessing.process")
    # Not `active_children()`, which takes the status of those that have ended.
    children = tuple(getattr(processes, "_children", ()))
    return {child.pid: ns for child in children if (ns := _cpu_ns(child.pid)) is not None}


def between(before: WorkerTimes, after: WorkerTimes) -> tuple[int, int]:
    """How many workers there were, and the CPU time of them all in between; (0, 0) where they are
    not the same as before."""
    if before.keys() != after.keys():
        return 0, 0
    return len(after), sum(after.values()) - sum(before.values())


def _cpu_ns(pid: int | None) -> int | None:
    folder = Path("/proc", str(pid))
    with suppress(OSError, ValueError, IndexError):
        if (folder / "comm").read_text().strip() == _NAME:
            return int((folder / "schedstat").read_text().split()[0])
    return None
