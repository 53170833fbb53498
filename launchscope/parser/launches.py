"""The only definition of a launch.

A launch is a runtime or driver call whose process and correlation id reach at least one
device activity; never a call of a certain name (a list of names loses a third of the
launches on real traces). One graph launch reaches many kernels and is one launch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from launchscope.parser import columns as c
from launchscope.parser.trace import Trace

__all__ = ["Launches", "find_launches", "synchronisations"]

# Calls that wait for the device, in the runtime's and the driver's spelling, suffixes aside.
_SYNC = r"^cu(?:da)?(?:Device|Stream|Event|Ctx|Thread)Synchronize"
_SYNC_COPY = r"^cu(?:da)?Memcpy(?!.*Async)(?!.*Peer)"


@dataclass(frozen=True)
class Launches:
    """The launches of a trace, by start, and its activities with the launch they came from.

    `calls` has the call's columns and `kind` (kernel, memcpy, memset, graph), `kernels`,
    `first_start_ns`, `last_end_ns`, `active_ns`, `blocking`. `coverage_pct` is the share of
    device activities that found their launch; None when there are none.
    """

    calls: pd.DataFrame
    activities: pd.DataFrame
    coverage_pct: float | None


def find_launches(trace: Trace) -> Launches:
    """Joins host calls to device activities on process and correlation id."""
    key = [c.PID, c.CORRELATION]
    activities = trace.activities
    joinable = activities[(activities[c.CORRELATION] >= 0) & (activities[c.PID] >= 0)]
    reached = joinable.assign(
        kernels=joinable[c.KIND] == c.KERNEL, copies=joinable[c.KIND] == c.MEMCPY
    ).groupby(key, sort=False)
    summary = reached.agg(
        kernels=(c.KERNELS, "sum"),
        copies=("copies", "sum"),
        activities=(c.START, "size"),
        first_start_ns=(c.START, "min"),
        last_end_ns=(c.END, "max"),
        active_ns=(c.DUR, "sum"),
        copy=(c.COPY, "first"),
    ).reset_index()
    # One id may carry a runtime call and the driver call inside it: the outer one is the launch.
    calls = trace.calls.drop_duplicates(key, keep="first").merge(summary, on=key, how="inner")
    calls = calls.sort_values(c.START, kind="stable", ignore_index=True)
    calls = calls.assign(kind=_kinds(calls), blocking=_blocking(calls))
    index = calls[key].assign(**{c.LAUNCH: np.arange(len(calls), dtype=np.int64)})
    joined = activities.merge(index, on=key, how="left")
    joined[c.LAUNCH] = joined[c.LAUNCH].fillna(-1).astype(np.int64)
    total = len(joined)
    coverage = 100.0 * float((joined[c.LAUNCH] >= 0).sum()) / total if total else None
    kept = [c.NAME, c.START, c.DUR, c.END, c.PID, c.TID, c.CORRELATION, c.EXTERNAL, c.KIND]
    kept += [c.KERNELS, c.ACTIVITIES, c.FIRST, c.LAST, c.ACTIVE, c.BLOCKING]
    return Launches(calls[kept], joined, coverage)


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
    pageable = calls["copy"].str.contains("Pageable", regex=False, na=False)
    return copy & (pageable | calls[c.NAME].str.contains(_SYNC_COPY, regex=True))
