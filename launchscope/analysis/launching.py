"""What the traced steps ran and how they launched it, added to a Profile with its metrics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from launchscope.analysis.replay_model.gain import TracedSteps
from launchscope.analysis.timeline.lines import Lines, kernel_table, launch_lines
from launchscope.analysis.timeline.modules import module_sources, operator_sources
from launchscope.analysis.timeline.pictures import launch_sources, timelines
from launchscope.analysis.timeline.work import Work
from launchscope.model import OpRecord, OverheadRow, Profile
from launchscope.parser import columns as c
from launchscope.parser.trace import Ints, ints

_MOST_ROWS = 1000
_LEAST_MS = 1e-6  # less overhead is an error of rounding


def with_traced(
    profile: Profile,
    traced: TracedSteps,
    ops: tuple[OpRecord, ...] = (),
    replayed: Work | None = None,
    *,
    details: bool = True,
) -> Profile:
    """The Profile with the kernels of its traced steps, and in `details` with pictures of them and
    with what shows how they were launched, and by what. `ops` are those of the inspected step."""
    lines = launch_lines(traced.work, ops)
    profile = replace(profile, kernels=kernel_table(lines))
    return _with_details(profile, traced, lines, replayed) if details else profile


def _with_details(
    profile: Profile, traced: TracedSteps, lines: Lines, replayed: Work | None
) -> Profile:
    work, launches = traced.work, traced.work.launches
    overhead_ms = profile.value("launch_overhead_ms")
    # What a backward launches counts where the forward was.
    made, forward = lines.forward >= 0, lines.forward
    time, thread = (
        np.where(made, np.append(ints(work.operators, column), 0)[forward], ints(launches, column))
        for column in (c.START, c.TID)
    )
    # The inspection knows lines and modules; a trace by itself may hold the calls of modules.
    by_line, by_module = lines.line_sources(), lines.module_sources()
    if not by_module[0]:
        by_module = module_sources(work, time, thread)
    sources = launch_sources(lines, by_line, by_module)
    return replace(
        profile,
        timelines=timelines(work, traced.timeline, sources, replayed),
        overhead_by_line=_overhead(traced, overhead_ms, *by_line),
        overhead_by_module=_overhead(traced, overhead_ms, *by_module),
        launches_by_operator=_overhead(traced, overhead_ms, *operator_sources(work)),
    )


def _overhead(
    traced: TracedSteps, overhead_ms: float | None, sources: Sequence[OverheadRow], source: Ints
) -> tuple[OverheadRow, ...] | None:
    """Launches and idle time by source: `overhead_ms` is split as the traced idle time is. `source`
    has the number of each launch's source, -1 for an unknown one. None where no source is
    known. The most idle time comes first, and what is of no known source last."""
    work, known, used = traced.work, len(sources), traced.work.iterations.used
    between, unknown = known + 1, known + 2
    row = np.where(work.step < 0, between, np.where(source < 0, unknown, source))
    counted = work.launches_kernel & np.isin(work.iteration, used)
    launches = np.bincount(row[counted], minlength=known + 3) / max(len(used), 1)
    exposed = np.bincount(row, traced.timeline.exposed_ns, minlength=known + 3)
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
        *(OverheadRow("", 0.0, None, part=p) for p in ("others", "between_steps", "unknown")),
    )
    times = [None] * len(idle) if overhead_ms is None else idle.tolist()
    rows = [
        replace(parts[i], launches=float(launches[i]), idle_ms=times[i])
        for i in np.flatnonzero((launches > 0) | (idle > 0))
    ]
    return tuple(sorted(rows, key=_order))


def _order(row: OverheadRow) -> tuple[bool, float, float, str]:
    return row.part != "known", -(row.idle_ms or 0.0), -row.launches, row.name
