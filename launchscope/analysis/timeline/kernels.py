"""The table of what runs on the device per step, and the user's line behind each kernel."""

from __future__ import annotations

from collections import Counter
from difflib import SequenceMatcher

import numpy as np
import numpy.typing as npt
import pandas as pd

from launchscope.analysis.timeline.intervals import latest
from launchscope.analysis.timeline.work import Work
from launchscope.model import KernelRow, OpRecord, OpRow
from launchscope.parser import columns as c
from launchscope.parser.trace import Ints, ints


def kernel_table(work: Work, ops: tuple[OpRecord, ...] = ()) -> tuple[KernelRow, ...]:
    """Kernels, copies and sets by name, per used step, the most expensive first. `where` is the
    line at which most of a kernel's time was launched, if the traced operators match the `ops`."""
    used = work.iterations.used
    mine = work.activities[np.isin(work.activity_step, used)]
    if not len(mine):
        return ()
    table = pd.DataFrame({"name": mine[c.NAME].astype(str), "us": mine[c.DUR] / 1e3})
    grouped = table.groupby("name", observed=True)["us"].agg(["size", "sum"])
    grouped = grouped.sort_values("sum", ascending=False)
    table["where"] = _lines(work, ops)[ints(mine, c.LAUNCH)]
    by_line = table.dropna(subset=["where"]).groupby(["name", "where"], observed=True)["us"].sum()
    top = by_line.sort_values(ascending=False).reset_index().drop_duplicates("name")
    where = dict(zip(top["name"], top["where"]))
    return tuple(
        KernelRow(str(name), size / len(used), total / len(used), where.get(name))
        for name, size, total in zip(grouped.index, grouped["size"], grouped["sum"])
    )


def op_table(ops: tuple[OpRecord, ...]) -> tuple[OpRow, ...]:
    """The inspected step's device ops by name and line, in the order in which they first ran."""
    counted = Counter((record.op, record.where) for record in ops)
    return tuple(OpRow(name, count, where) for (name, where), count in counted.items())


def _lines(work: Work, ops: tuple[OpRecord, ...]) -> npt.NDArray[np.object_]:
    """The user's line of each launch, and at the end of no launch; None where it is not known.

    A launch is inside the outermost traced operator that has an inspected op's name. Step by step,
    these operators are aligned with the inspected ones.
    """
    result = np.full(len(work.launches) + 1, None, object)
    wanted = [_base(record.op) for record in ops]
    if not wanted or not len(work.trace.ops):
        return result
    traced = work.trace.ops[work.trace.ops[c.NAME].isin({f"aten::{name}" for name in wanted})]
    # Only operators that lie in no other one of these on their thread.
    traced = traced.sort_values([c.TID, c.START], kind="stable")
    reach = traced.groupby(c.TID)[c.END].cummax().groupby(traced[c.TID]).shift(1)
    traced = traced[~(traced[c.START] < reach)]
    traced = traced.sort_values(c.START, kind="stable", ignore_index=True)
    start, end = ints(traced, c.START), ints(traced, c.END)
    call, tid = ints(work.launches, c.START), ints(work.launches, c.TID)
    holder = latest(start, ints(traced, c.TID), call, tid)
    holder[call >= np.append(end, 0)[holder]] = -1
    names = traced[c.NAME].str.removeprefix("aten::").to_numpy(object)
    where = np.array([*(record.where for record in ops), None], object)
    for step in work.iterations.used:  # a handful
        inside = (work.step == step) & (holder >= 0)
        operators = np.unique(holder[inside])
        lines = where[_aligned(list(names[operators]), wanted)]
        result[:-1][inside] = lines[np.searchsorted(operators, holder[inside])]
    return result


def _aligned(traced: list[str], wanted: list[str]) -> Ints:
    """For each traced operator its place in the inspected order; the place past the end if none."""
    places = np.full(len(traced), len(wanted), np.int64)
    matcher = SequenceMatcher(None, traced, wanted, autojunk=False)
    for block in matcher.get_matching_blocks():
        places[block.a : block.a + block.size] = np.arange(block.b, block.b + block.size)
    return places


def _base(op: str) -> str:
    """ "add_" of "aten.add_.Tensor"."""
    parts = op.split(".")
    return parts[1] if len(parts) > 1 else op
