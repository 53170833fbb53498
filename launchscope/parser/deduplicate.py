"""Takes out what stands in a trace twice, as after two overlapping files were put into one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from launchscope.parser import columns as c
from launchscope.parser.trace import Trace, ints

__all__ = ["deduplicated"]


def deduplicated(trace: Trace) -> Trace:
    """The trace with each event once, and a repair that counts what was left out.

    Only calls tell: one thread cannot make the same call, with one correlation id, twice in one
    nanosecond, whereas equal ranges, operators and device work can be real. So unless calls are
    doubled, everything stays.
    """
    known = trace.calls[ints(trace.calls, c.CORRELATION) > 0]
    if not _doubled(known).any():
        return trace
    frames, count = {}, 0
    for name in ("calls", "activities", "ranges", "ops", "gradients"):
        table = getattr(trace, name)
        doubled = _doubled(table)
        if name != "gradients":  # they are operators, and counted as such
            count += int(doubled.sum())
        frames[name] = table[~doubled].reset_index(drop=True)
    damage = replace(
        trace.damage, repairs=(*trace.damage.repairs, f"{count:,} events that stand twice left out")
    )
    return replace(trace, damage=damage, **frames)


def _doubled(table: pd.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Rows that equal an earlier one in every column. Rows are by start."""
    start = ints(table, c.START)
    same = np.zeros(len(table) + 1, np.bool_)
    same[1:-1] = start[1:] == start[:-1]
    near = np.flatnonzero(same[1:] | same[:-1])
    doubled = np.zeros(len(table), np.bool_)
    doubled[near] = table.iloc[near].duplicated().to_numpy(bool)
    return doubled
