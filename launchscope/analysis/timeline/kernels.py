"""The table of what runs on the device per step, and the user's line behind each kernel."""

from __future__ import annotations

from collections import Counter
from difflib import SequenceMatcher

import numpy as np
import pandas as pd

from launchscope.analysis.timeline.work import Work
from launchscope.model import KernelRow, OpRecord, OpRow
from launchscope.parser import columns as c
from launchscope.parser.trace import Ints, ints


def kernel_table(work: Work, ops: tuple[OpRecord, ...] = ()) -> tuple[KernelRow, ...]:
    """Kernels, copies and sets by name, per used step, the most expensive first.

    `where` is the line at which most of a kernel's time was launched, None where the traced
    operators cannot be matched to the inspected ones.
    """
    used = work.iterations.used
    rows = np.isin(work.activity_step, used)
    if not rows.any():
        return ()
    mine = work.activities[rows]
    table = pd.DataFrame({"name": mine[c.NAME].astype(str), "us": mine[c.DUR] / 1e3})
    grouped = (
        table.groupby("name", observed=True)["us"]
        .agg(["size", "sum"])
        .sort_values("sum", ascending=False)
    )
    lines = _lines(work, ops)
    if lines is None:
        where = pd.Series(dtype=object)
    else:
        table["where"] = lines[ints(mine, c.LAUNCH)]
        by_line = (
            table.dropna(subset=["where"]).groupby(["name", "where"], observed=True)["us"].sum()
        )
        top = by_line.sort_values(ascending=False).reset_index().drop_duplicates("name")
        where = top.set_index("name")["where"]
    return tuple(
        KernelRow(str(name), size / len(used), total / len(used), where.get(name))
        for name, size, total in zip(grouped.index, grouped["size"], grouped["sum"])
    )


def op_table(ops: tuple[OpRecord, ...]) -> tuple[OpRow, ...]:
    """The inspected step's device ops by name and line, in the order in which they first ran."""
    counted = Counter((record.op, record.where) for record in ops)
    return tuple(OpRow(name, count, where) for (name, where), count in counted.items())


def _lines(
    work: Work, ops: tuple[OpRecord, ...]
) -> np.ndarray[tuple[int], np.dtype[np.object_]] | None:
    """The user's line of each launch, an object array with None where it is not known.

    A launch is inside the outermost traced operator that has the name of an inspected op. The
    sequence of those operators is aligned with the inspected one, step by step.
    """
    wanted = [_base(record.op) for record in ops]
    if not wanted or not len(work.trace.ops):
        return None
    traced = work.trace.ops[work.trace.ops[c.NAME].isin({f"aten::{name}" for name in wanted})]
    traced = _outermost(traced)
    start, end = ints(traced, c.START), ints(traced, c.END)
    call, tid = ints(work.launches, c.START), ints(work.launches, c.TID)
    holder = np.full(len(call), -1, np.int64)
    for thread in np.unique(tid):
        rows = np.flatnonzero(ints(traced, c.TID) == thread)
        mine = np.flatnonzero(tid == thread)
        if not len(rows):
            continue
        last = np.searchsorted(start[rows], call[mine], side="right") - 1
        found = rows[np.maximum(last, 0)]
        holder[mine] = np.where((last >= 0) & (call[mine] < end[found]), found, -1)
    result = np.full(len(call), None, object)
    names = traced[c.NAME].str.removeprefix("aten::").to_numpy(object)
    where = np.array([*(record.where for record in ops), None], object)
    for step in work.iterations.used:  # a handful
        inside = (work.step == step) & (holder >= 0)
        operators = np.unique(holder[inside])
        lines = where[_aligned(list(names[operators]), wanted)]
        result[inside] = lines[np.searchsorted(operators, holder[inside])]
    return result


def _aligned(traced: list[str], wanted: list[str]) -> Ints:
    """For each traced operator its place in the inspected order; the place past the end if none.

    The two differ where an operator ran under another name in one of them; what lies between
    such places in equal order still belongs together.
    """
    places = np.full(len(traced), len(wanted), np.int64)
    matcher = SequenceMatcher(None, traced, wanted, autojunk=False)
    for block in matcher.get_matching_blocks():
        places[block.a : block.a + block.size] = np.arange(block.b, block.b + block.size)
    return places


def _outermost(traced: pd.DataFrame) -> pd.DataFrame:
    """Operators that lie in no other one of the frame on their thread."""
    ordered = traced.sort_values([c.TID, c.START], kind="stable")
    reach = ordered.groupby(c.TID)[c.END].cummax().groupby(ordered[c.TID]).shift(1)
    outer = ordered[~(ordered[c.START] < reach)]
    return outer.sort_values(c.START, kind="stable", ignore_index=True)


def _base(op: str) -> str:
    """ "add_" of "aten.add_.Tensor"."""
    parts = op.split(".")
    return parts[1] if len(parts) > 1 else op
