"""How long the workers of data loaders have computed, as the kernel says of their processes."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from launchscope.runner.child.plain_values import own_attributes

_NAME = "pt_data_worker"  # torch calls their main threads so


def worker_times_ns() -> dict[int, int]:
    """CPU time of each running worker's main thread, by process; those of which Linux does not say
    it are left out."""
    return {pid: ns for pid in _children() if (ns := _cpu_ns(pid)) is not None}


def between(before: dict[int, int], after: dict[int, int]) -> tuple[int, int]:
    """How many workers there were all the time, and the CPU time of them all in between; (0, 0)
    where some began or ended."""
    if before.keys() != after.keys():
        return 0, 0
    return len(after), sum(after.values()) - sum(before.values())


def _children() -> Iterator[int]:
    processes = sys.modules.get("multiprocessing.process")
    # Not `active_children()`, which takes the status of those that have ended.
    for process in tuple(own_attributes(processes).get("_children", ())):
        pid = own_attributes(own_attributes(process).get("_popen")).get("pid")
        if type(pid) is int:
            yield pid


def _cpu_ns(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/comm") as file:
            if file.read().strip() != _NAME:
                return None
        with open(f"/proc/{pid}/schedstat") as file:
            return int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        return None
