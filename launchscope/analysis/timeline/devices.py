"""What every process of a trace did on every GPU, over the whole trace."""

from __future__ import annotations

import numpy as np

from launchscope.analysis.timeline.intervals import Cover
from launchscope.analysis.timeline.work import Work
from launchscope.model import DeviceRow
from launchscope.parser import columns as c
from launchscope.parser.launches import Launches
from launchscope.parser.trace import Bools, distinct, ints

_PROCESS = 0xFFFFFF  # nsys puts the machine above the process's own number


def device_rows(joined: Launches, work: Work) -> tuple[DeviceRow, ...]:
    """A row per GPU and process, by number. Work of an unknown process is that of the only one on
    its GPU, if there is only one."""
    activities = joined.activities
    devices, device = distinct(ints(activities, c.DEVICE))
    processes, process = distinct(ints(activities, c.PID))
    group = device * len(processes) + process
    start, end, launch = (ints(activities, column) for column in (c.START, c.END, c.LAUNCH))
    is_kernel = activities[c.KIND] == c.KERNEL
    main, pid = int(work.activities[c.DEVICE][0]), work.iterations.pid
    found: dict[int, dict[int, Bools]] = {}  # which activities, by GPU and process
    for number in np.flatnonzero(np.bincount(group)):  # a handful
        gpu, owner = devices[number // len(processes)], processes[number % len(processes)]
        found.setdefault(int(gpu), {})[int(owner)] = group == number
    rows = []
    for gpu, owners in found.items():
        if len(owners) == 2 and -1 in owners:
            owners = {max(owners): owners[-1] | owners[max(owners)]}
        for owner, mine in owners.items():
            spans = Cover.of(start[mine], end[mine])
            busy = int((spans.ends - spans.starts).sum())
            whole = int(spans.ends[-1] - spans.starts[0])
            rows.append(
                DeviceRow(
                    device=gpu,
                    process=owner & _PROCESS if owner >= 0 else None,
                    launches=len(distinct(launch[mine & (launch >= 0)])[0]),
                    kernels=int((mine & is_kernel).sum()),
                    busy_ms=busy / 1e6,
                    idle_ms=(whole - busy) / 1e6,
                    in_figures=gpu == main and (pid is None or owner in (pid, -1)),
                )
            )
    return tuple(rows)
