"""The only definition of a launch.

A launch is a runtime or driver call whose process and correlation id reach at least one
device activity; never a call of a certain name (a list of names loses a third of the
launches on real traces). One graph launch reaches many kernels and is one launch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from launchscope.parser import columns as c
from launchscope.parser.trace import Ints, Trace, ints

__all__ = ["Launches", "find_launches", "synchronisations"]

# Calls that wait for the device, as runtime, driver and HIP spell them, suffixes aside.
_SYNC = r"^(?:cu(?:da)?|hip)(?:Device|Stream|Event|Ctx|Thread)Synchronize"
_SYNC_COPY = r"^(?:cu(?:da)?|hip)Memcpy(?!.*Async)(?!.*Peer)"

# By which an inner call may end after the outer one in a file of whole microseconds.
_ROUNDING_NS = 1000


@dataclass(frozen=True)
class Launches:
    """The launches of a trace, by start, and its activities with the launch they came from.

    `calls` has the call's columns and `kind` (kernel, memcpy, memset, graph), `kernels`,
    `first_start_ns`, `last_end_ns`, `active_ns`, `blocking`. `coverage_pct` is the share of
    device activities that found their launch; None when there are none. `reused` counts the
    activities whose id several calls of their process had: they are given to none of them.
    """

    calls: pd.DataFrame
    activities: pd.DataFrame
    coverage_pct: float | None
    reused: int = 0


def find_launches(trace: Trace) -> Launches:
    """Joins host calls to device activities on process and correlation id."""
    calls, activities = trace.calls, trace.activities
    call_id, activity_id, count = _identities(calls, activities)
    # One id may carry a runtime call and the driver call inside it: the outer one is the launch.
    row_of = np.full(count + 1, -1, np.int64)
    row_of[call_id[::-1]] = np.arange(len(calls))[::-1]
    row_of[-1] = -1  # the id of what has none
    caller = row_of[activity_id]
    row_of[_reused(calls, call_id, row_of)] = -1
    reused = int(((caller >= 0) & (row_of[activity_id] < 0)).sum())
    caller = row_of[activity_id]
    launching = np.unique(caller[caller >= 0])
    row = np.full(len(calls) + 1, -1, np.int64)
    row[launching] = np.arange(len(launching))
    launch = row[caller]
    found = calls.iloc[launching].reset_index(drop=True)
    found = found.assign(**_reached(activities, launch, len(found)))
    found = found.assign(kind=_kinds(found), blocking=_blocking(found))
    joined = activities.assign(**{c.LAUNCH: launch})
    coverage = 100.0 * float((launch >= 0).mean()) if len(launch) else None
    return Launches(found.drop(columns=["copies", "pageable"]), joined, coverage, reused)


def _identities(calls: pd.DataFrame, activities: pd.DataFrame) -> tuple[Ints, Ints, int]:
    """One number for each pair of process and correlation id, of calls and of activities, and
    how many there are. What has no process or no correlation id gets -1."""
    pid = np.concatenate((ints(calls, c.PID), ints(activities, c.PID)))
    correlation = np.concatenate((ints(calls, c.CORRELATION), ints(activities, c.CORRELATION)))
    known = (pid >= 0) & (correlation > 0)  # 0 is CUPTI's word for unknown
    process, processes = pd.factorize(pid)
    number, _ = pd.factorize(correlation)
    pair = number.astype(np.int64) * max(len(processes), 1) + process
    identity, distinct = pd.factorize(pair)
    identity = np.where(known, identity, -1).astype(np.int64)
    return identity[: len(calls)], identity[len(calls) :], len(distinct)


def _reused(calls: pd.DataFrame, call_id: Ints, row_of: Ints) -> Ints:
    """Ids of calls that are not one inside the other, as when ranks whose processes have the
    same number were merged into one file."""
    rows = np.arange(len(calls))
    later = rows[(call_id >= 0) & (row_of[call_id] != rows)]
    first = row_of[call_id[later]]
    start, end, tid = (ints(calls, column) for column in (c.START, c.END, c.TID))
    inside = (start[later] < np.maximum(end[first], start[first] + 1)) & (tid[later] == tid[first])
    inside &= end[later] <= end[first] + _ROUNDING_NS
    return np.unique(call_id[later[~inside]])


def _reached(activities: pd.DataFrame, launch: Ints, count: int) -> dict[str, Any]:
    """Per launch: how many activities of which kind it reached, and when they ran."""
    rows = np.flatnonzero(launch >= 0)
    owner = launch[rows]
    kernels, copies = (
        (activities[c.KIND] == kind).to_numpy(bool)[rows] for kind in (c.KERNEL, c.MEMCPY)
    )
    pageable = activities[c.COPY].astype(str).str.contains("Pageable", regex=False)
    first, last = np.zeros(count, np.int64), np.zeros(count, np.int64)
    # Activities are by start: written backwards, the first one of a launch stays.
    first[owner[::-1]] = ints(activities, c.START)[rows][::-1]
    last[owner] = ints(activities, c.START)[rows]
    np.maximum.at(last, owner, ints(activities, c.END)[rows])
    active = np.zeros(count, np.int64)
    np.add.at(active, owner, ints(activities, c.DUR)[rows])

    def number(chosen: Any) -> Ints:
        return np.bincount(owner[chosen], minlength=count).astype(np.int64)

    return {
        c.KERNELS: number(kernels),
        "copies": number(copies),
        c.ACTIVITIES: number(slice(None)),
        c.FIRST: first,
        c.LAST: last,
        c.ACTIVE: active,
        "pageable": number(copies & pageable.to_numpy(bool)[rows]) > 0,
    }


def synchronisations(trace: Trace, launches: Launches) -> pd.DataFrame:
    """Host calls that wait for the device, by start: a call's columns and `counted`.

    A pageable copy is one. It is not `counted` when the very next call of its thread is a
    synchronisation: that is how PyTorch writes one blocking copy, and it counts once.
    """
    columns = [c.NAME, c.START, c.DUR, c.END, c.PID, c.TID, c.CORRELATION]
    explicit = trace.calls[trace.calls[c.NAME].str.contains(_SYNC, regex=True)]
    count, blocking = len(explicit), launches.calls[c.BLOCKING].to_numpy(bool)
    order = pd.concat([explicit[columns], launches.calls[columns]], ignore_index=True)
    order["waits"] = np.arange(len(order)) < count
    order["copy"] = np.concatenate((np.zeros(count, bool), blocking))
    order = order.sort_values([c.PID, c.TID, c.START], kind="stable", ignore_index=True)
    followed = order.groupby([c.PID, c.TID])["waits"].shift(-1, fill_value=False)
    order[c.COUNTED] = order["waits"] | ~followed
    kept = order.loc[order["waits"] | order["copy"], [*columns, c.COUNTED]]
    return kept.sort_values(c.START, kind="stable", ignore_index=True)


def _kinds(calls: pd.DataFrame) -> pd.Series[str]:
    several = (calls[c.ACTIVITIES] > 1) & (calls[c.KERNELS] > 0)
    graph = several | calls[c.NAME].str.contains("GraphLaunch", regex=False)
    kind = np.where(calls["copies"] > 0, c.MEMCPY, c.MEMSET)
    kind = np.where(calls[c.KERNELS] > 0, c.KERNEL, kind)
    return pd.Series(np.where(graph, c.GRAPH, kind), index=calls.index, dtype=object)


def _blocking(calls: pd.DataFrame) -> pd.Series[bool]:
    """Copies to or from pageable memory, and copies by a call that is not asynchronous."""
    copy = calls["copies"] > 0
    return copy & (calls["pageable"] | calls[c.NAME].str.contains(_SYNC_COPY, regex=True))
