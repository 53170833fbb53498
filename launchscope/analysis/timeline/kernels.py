"""The table of what runs on the device per step, and the user's line behind each kernel."""

from __future__ import annotations

from collections import Counter

import numpy as np

from launchscope.analysis.timeline.lines import Lines
from launchscope.model import KernelRow, OpRecord, OpRow
from launchscope.parser import columns as c
from launchscope.parser.trace import ints


def kernel_table(lines: Lines) -> tuple[KernelRow, ...]:
    """Kernels, copies and sets by name, per used step, the most expensive first. `where` is the
    line at which most of a kernel's time was launched, where it is known."""
    work, used = lines.work, lines.work.iterations.used
    mine = work.activities[np.isin(work.activity_step, used)]
    if not len(mine):
        return ()
    names, time = mine[c.NAME], ints(mine, c.DUR)
    count, total = np.bincount(names.codes), np.bincount(names.codes, time)
    known = sorted({record.where for record in lines.ops if record.where is not None})
    number = {None: 0} | {where: row for row, where in enumerate(known, 1)}
    line_of = np.array([*(number[record.where] for record in lines.ops), 0])
    line = line_of[np.append(lines.of_launch, -1)[ints(mine, c.LAUNCH)]]
    # Of each name: the time that was launched at each line.
    width = len(known) + 1
    by_line = np.bincount(names.codes * width + line, time, len(count) * width)
    by_line = by_line.reshape(len(count), width)
    by_line[:, 0] = 0  # no line
    rows = zip(
        names.texts,
        (count / len(used)).tolist(),
        (total / 1e3 / len(used)).tolist(),
        map([None, *known].__getitem__, by_line.argmax(axis=1)),
    )
    found = (KernelRow(*row) for row in rows if row[1])
    return tuple(sorted(found, key=lambda row: (-row.total_us, row.name)))


def op_table(ops: tuple[OpRecord, ...]) -> tuple[OpRow, ...]:
    """The inspected step's device ops by name and line, in the order in which they first ran."""
    counted = Counter((record.op, record.where) for record in ops)
    return tuple(OpRow(name, count, where) for (name, where), count in counted.items())
