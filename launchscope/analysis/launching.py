"""What the traced steps ran and how they launched it, added to a Profile with its metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from launchscope.analysis.replay_model.gain import TracedSteps
from launchscope.analysis.timeline.intervals import union_ns_by_group
from launchscope.analysis.timeline.lines import Lines, kernel_table, launch_lines
from launchscope.analysis.timeline.modules import module_sources, operator_sources
from launchscope.analysis.timeline.pictures import timelines
from launchscope.analysis.timeline.queue_depth import queue_depth
from launchscope.analysis.timeline.work import Work
from launchscope.model import (
    Extreme,
    Histogram,
    Histograms,
    OpRecord,
    OverheadRow,
    Profile,
    StreamRow,
)
from launchscope.parser import columns as c
from launchscope.parser.trace import Ints, distinct, ints, numbered, where

# Of a histogram: six bins per decade from 100 ns on, and one for what is shorter.
_STEPS = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
_EDGES_NS = np.array([0, *(round(step * 10**power) for power in range(2, 18) for step in _STEPS)])
# Outliers are above the third quartile by more than so many interquartile ranges, and above its
# double: on a quiet machine that range is a few nanoseconds.
_FAR_OUT, _AT_LEAST = 3.0, 2.0
_LARGEST = 5
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
    return replace(
        profile,
        timelines=timelines(work, traced.timeline, replayed, alone=traced.pauses),
        histograms=_histograms(lines),
        queue_depth=queue_depth(work, traced.timeline),
        streams=_streams(work),
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


def _histograms(lines: Lines) -> Histograms:
    """How long launch calls, kernels, and what is between them took in the used steps."""
    work = lines.work
    launches, activities, used = work.launches, work.activities, work.iterations.used
    launch, duration = ints(activities, c.LAUNCH), ints(activities, c.DUR)
    is_kernel = where(activities[c.KIND], c.KERNEL.__eq__)
    ran = np.flatnonzero(np.isin(work.activity_step, used) & is_kernel)
    launched = ran[launch[ran] >= 0]
    # Activities are by start: the first one of a launch.
    launching, at = np.unique(launch[launched], return_index=True)
    first = launched[at]
    begun = ints(activities, c.START)[first]
    called, returned, call = (ints(launches, column) for column in (c.START, c.END, c.DUR))
    calls = np.flatnonzero(np.isin(work.step, used) & ~np.asarray(launches[c.BLOCKING], bool))
    own = launched[ints(launches, c.KERNELS)[launch[launched]] == 1]
    short = int((duration[own] < call[launch[own]]).sum())
    kernel_name, kernel_names = numbered(activities, c.NAME)
    call_name, call_names = numbered(launches, c.NAME)
    line = lines.where

    def of_kernels(values: Ints, rows: Ints) -> Histogram | None:
        return _histogram(values, kernel_name[rows], kernel_names, line[launch[rows]])

    return Histograms(
        launch_delay=of_kernels(begun - called[launching], first),
        queue_delay=of_kernels(np.maximum(begun - returned[launching], 0), first),
        launch_call=_histogram(call[calls], call_name[calls], call_names, line[calls]),
        kernel=of_kernels(duration[ran], ran),
        short_kernels=short / len(used) if len(own) else None,
        short_kernels_pct=100 * short / len(own) if len(own) else None,
    )


def _histogram(
    values: Ints, name: Ints, names: list[str], line: npt.NDArray[np.object_]
) -> Histogram | None:
    """The histogram of values in ns, each with the number of its name and with its line."""
    if not len(values):
        return None
    at = np.searchsorted(_EDGES_NS, values, "right").clip(1) - 1
    edges = _EDGES_NS[at.min() : at.max() + 2] / 1e3
    quartile, middle, third, high = np.percentile(values, (25, 50, 75, 95))
    most = max(third + _FAR_OUT * (third - quartile), _AT_LEAST * third)
    outliers = np.flatnonzero(values > most)
    largest = outliers[np.argsort(-values[outliers], kind="stable")[:_LARGEST]]
    return Histogram(
        edges_us=tuple(edges.tolist()),
        counts=tuple(np.bincount(at - at.min()).tolist()),
        median_us=float(middle) / 1e3,
        p95_us=float(high) / 1e3,
        outliers=len(outliers),
        largest=tuple(Extreme(names[name[i]], float(values[i]) / 1e3, line[i]) for i in largest),
    )


def _streams(work: Work) -> tuple[StreamRow, ...]:
    """A row per stream, by number."""
    used = work.iterations.used
    ran = np.flatnonzero(np.isin(work.activity_step, used))
    start, end, launch, stream = (
        ints(work.activities, column)[ran] for column in (c.START, c.END, c.LAUNCH, c.STREAM)
    )
    streams, group = distinct(stream)
    is_kernel = where(work.activities[c.KIND], c.KERNEL.__eq__)[ran]
    launched = is_kernel & np.append(work.launches_kernel, False)[launch]
    count = len(streams)
    rows = zip(
        streams.tolist(),
        (np.bincount(group[launched], minlength=count) / len(used)).tolist(),
        (np.bincount(group, minlength=count) / len(used)).tolist(),
        (union_ns_by_group(start, end, group, count) / len(used) / 1e6).tolist(),
    )
    return tuple(StreamRow(*row) for row in rows)
