"""The table of what runs on the device per step, and the user's line behind each kernel."""

from __future__ import annotations

from collections import Counter
from difflib import SequenceMatcher

import numpy as np

from launchscope.analysis.timeline.intervals import latest, running_max
from launchscope.analysis.timeline.work import Work
from launchscope.model import KernelRow, OpRecord, OpRow, SourceLine
from launchscope.parser import columns as c
from launchscope.parser.trace import Ints, ints, where


def kernel_table(work: Work, ops: tuple[OpRecord, ...] = ()) -> tuple[KernelRow, ...]:
    """Kernels, copies and sets by name, per used step, the most expensive first. `where` is the
    line at which most of a kernel's time was launched, if the traced operators match the `ops`."""
    used = work.iterations.used
    mine = work.activities[np.isin(work.activity_step, used)]
    if not len(mine):
        return ()
    names, time = mine[c.NAME], ints(mine, c.DUR)
    count, total = np.bincount(names.codes), np.bincount(names.codes, time)
    lines = sorted({record.where for record in ops if record.where is not None})
    line = _lines(work, ops, lines)[ints(mine, c.LAUNCH)] + 1
    # Of each name: the time that was launched at each line.
    width = len(lines) + 1
    by_line = np.bincount(names.codes * width + line, time, len(count) * width)
    by_line = by_line.reshape(len(count), width)
    by_line[:, 0] = 0  # no line
    rows = zip(
        names.texts,
        (count / len(used)).tolist(),
        (total / 1e3 / len(used)).tolist(),
        map([None, *lines].__getitem__, by_line.argmax(axis=1)),
    )
    found = (KernelRow(*row) for row in rows if row[1])
    return tuple(sorted(found, key=lambda row: (-row.total_us, row.name)))


def op_table(ops: tuple[OpRecord, ...]) -> tuple[OpRow, ...]:
    """The inspected step's device ops by name and line, in the order in which they first ran."""
    counted = Counter((record.op, record.where) for record in ops)
    return tuple(OpRow(name, count, where) for (name, where), count in counted.items())


def _lines(work: Work, ops: tuple[OpRecord, ...], lines: list[SourceLine]) -> Ints:
    """Which of the user's `lines` each launch is of, and at the end no launch; -1 where that is not
    known.

    A launch is inside the outermost traced operator that has an inspected op's name. Step by step,
    these operators are aligned with the inspected ones.
    """
    result = np.full(len(work.launches) + 1, -1)
    wanted = [_base(record.op) for record in ops]
    if not wanted or not len(work.trace.ops):
        return result
    chosen = {f"aten::{name}" for name in wanted}
    traced = work.trace.ops[where(work.trace.ops[c.NAME], chosen.__contains__)]
    # Only operators that lie in no other one of these on their thread.
    traced = traced[np.argsort(ints(traced, c.TID), kind="stable")]
    start, tid = ints(traced, c.START), ints(traced, c.TID)
    reach = np.append(0, running_max(ints(traced, c.END), tid)[:-1])
    traced = traced[(np.diff(tid, prepend=-2) != 0) | (start >= reach)]
    start, end = ints(traced, c.START), ints(traced, c.END)
    call, tid = ints(work.launches, c.START), ints(work.launches, c.TID)
    holder = latest(start, ints(traced, c.TID), call, tid)
    holder[call >= np.append(end, 0)[holder]] = -1
    by_time = np.argsort(start, kind="stable")
    holder = np.append(np.argsort(by_time), -1)[holder]
    names = traced[c.NAME][by_time]
    number = {None: -1} | {line: row for row, line in enumerate(lines)}
    line = np.array([*(number[record.where] for record in ops), -1])
    for step in work.iterations.used:  # a handful
        inside = (work.step == step) & (holder >= 0)
        operators = np.unique(holder[inside])
        ran = [name.removeprefix("aten::") for name in names[operators]]
        found = line[_aligned(ran, wanted)]
        result[:-1][inside] = found[np.searchsorted(operators, holder[inside])]
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
