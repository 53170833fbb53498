"""Launches, and the launch overhead that they cause, by what made them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from launchscope.analysis.timeline.timeline import Timeline
from launchscope.analysis.timeline.work import Work
from launchscope.model import OverheadRow
from launchscope.parser.trace import Ints

_MOST_ROWS = 1000
_LEAST_MS = 1e-6  # less overhead is an error of rounding


def overhead_rows(
    work: Work,
    timeline: Timeline,
    overhead_ms: float | None,
    sources: Sequence[OverheadRow],
    source: Ints,
) -> tuple[OverheadRow, ...] | None:
    """`overhead_ms` split by the number of each launch's source, -1 for an unknown one, in
    proportion to the traced idle time; None where none is known. Most idle time first, and what
    is not known at the end."""
    known, used = len(sources), work.iterations.used
    between, unknown = known + 1, known + 2
    row = np.where(work.step < 0, between, np.where(source < 0, unknown, source))
    counted = work.launches_kernel & np.isin(work.iteration, used)
    launches = np.bincount(row[counted], minlength=known + 3) / max(len(used), 1)
    exposed = np.bincount(row, timeline.iteration_idle.exposed_ns, minlength=known + 3)
    if not launches[:known].any() and not exposed[:known].any():
        return None
    total = overhead_ms if overhead_ms is not None and overhead_ms >= _LEAST_MS else 0.0
    if not exposed.any():
        exposed[unknown] = 1.0  # idle time that no gap of the trace shows
    idle = exposed * (total / float(exposed.sum()))
    left_out = np.lexsort((-launches[:known], -idle[:known]))[_MOST_ROWS:]
    for amount in (launches, idle):
        amount[known] = amount[left_out].sum()
        amount[left_out] = 0.0
    parts: tuple[OverheadRow, ...] = (
        *sources,
        OverheadRow("", 0.0, None, part="others"),
        OverheadRow("", 0.0, None, part="between_steps"),
        OverheadRow("", 0.0, None, part="unknown"),
    )
    rows = [
        replace(
            parts[i],
            launches=float(launches[i]),
            idle_ms=None if overhead_ms is None else float(idle[i]),
        )
        for i in np.flatnonzero((launches > 0) | (idle > 0))
    ]
    return tuple(sorted(rows, key=_order))


def _order(row: OverheadRow) -> tuple[bool, float, float, str]:
    return row.part != "known", -(row.idle_ms or 0.0), -row.launches, row.name
