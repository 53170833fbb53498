"""The person's line and module behind each launch, from the operators that were inspected, and the
table of what runs on the device per step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import cached_property

import numpy as np
from msgspec import Struct

from launchscope.analysis.timeline.intervals import Nesting, count_until, last_begun
from launchscope.analysis.timeline.work import Work
from launchscope.model import KernelRow, OpRecord, OpRow, OverheadRow
from launchscope.parser import columns as c
from launchscope.parser.trace import Ints, ints, numbered, unique


class Lines(Struct, frozen=True, dict=True):
    """Inspected ops by number, -1 for none: of each launch, and of the traced `operators`, which
    are of level 1, by thread and start."""

    work: Work
    ops: tuple[OpRecord, ...]
    of_launch: Ints
    operators: Nesting
    of_operator: Ints

    @cached_property
    def forward(self) -> Ints:
        """The row of `work.operators` that made the node of each launch of a backward, or -1."""
        return forward_operators(self.work)

    def line_sources(self) -> tuple[list[OverheadRow], Ints]:
        """The lines, and the number of that of each launch; for a launch of a backward that of the
        forward, where both are known."""
        rows = {r.where: OverheadRow(str(r.where), 0.0, None, r.where) for r in self.ops if r.where}
        return list(rows.values()), self._of_forward([*rows], [r.where for r in self.ops])

    def module_sources(self) -> tuple[list[OverheadRow], Ints]:
        """The modules, and the number of that of each launch, likewise."""
        stacks = list(dict.fromkeys(record.modules for record in self.ops if record.modules))
        rows = [
            OverheadRow(".".join(stack[1:] or stack), 0.0, None, stack=stack) for stack in stacks
        ]
        return rows, self._of_forward(stacks, [record.modules for record in self.ops])

    def _of_forward(self, labels: Sequence[object], of_op: Sequence[object]) -> Ints:
        """The number of the label of each launch, from that of each inspected op."""
        number = {label: i for i, label in enumerate(labels)}
        label = np.array([*(number.get(each, -1) for each in of_op), -1], np.int64)
        launches, ops, forward = self.work.launches, self.work.operators, self.forward
        found = self._around(label, *(ints(launches, k) for k in (c.START, c.END, c.TID)))
        found = np.where(self.of_launch >= 0, label[self.of_launch], found)
        backward = np.flatnonzero(forward >= 0)
        columns = (ints(ops, column)[forward[backward]] for column in (c.START, c.END, c.TID))
        made = self._around(label, *columns)
        found[backward] = np.where(made >= 0, made, found[backward])
        return found

    def _around(self, label: Ints, start: Ints, end: Ints, thread: Ints) -> Ints:
        """The label of an operator or call of a thread: that of the operator that holds its begin,
        or of the first one in it; or else of those before and after it, if that is the same."""
        found = self.operators
        of_operator = label[np.append(self.of_operator, -1)]
        after = count_until(found.start, found.thread, start, thread)
        rows = []
        for row in (after - 1, after):
            row = np.where((row >= 0) & (row < len(found.start)), row, -1)
            rows.append(np.where(np.append(found.thread, -1)[row] == thread, row, -1))
        before, following = (of_operator[row] for row in rows)
        inside = (rows[0] >= 0) & (start < np.append(found.end, 0)[rows[0]])
        within = (rows[1] >= 0) & (np.append(found.start, 0)[rows[1]] < end)
        between = np.where(before == following, before, -1)
        return np.where(inside, before, np.where(within, following, between))


def launch_lines(work: Work, ops: tuple[OpRecord, ...] = ()) -> Lines:
    """A launch is inside the outermost traced operator that has an inspected op's name. Step by
    step, these operators are aligned with the inspected `ops`."""
    wanted = [_base(record.op) for record in ops]
    name, names = numbered(work.operators, c.NAME)
    of_aten = {f"aten::{base}" for base in wanted}
    is_wanted = np.array([known in of_aten for known in names], np.bool_)
    rows = np.flatnonzero(is_wanted[name])
    start, end, tid = (ints(work.operators, column)[rows] for column in (c.START, c.END, c.TID))
    outermost = Nesting.of(start, end, tid).level == 1
    rows = rows[outermost]
    found = Nesting.of(start[outermost], end[outermost], tid[outermost])
    call, thread = ints(work.launches, c.START), ints(work.launches, c.TID)
    holder = found.at_level(1, call, thread)
    of_launch, of_operator = np.full(len(call), -1), np.full(len(rows), -1)
    aligned: dict[tuple[str, ...], Ints] = {}  # most steps run the same operators
    for step in work.iterations.used:  # a handful
        inside = (work.step == step) & (holder >= 0)
        operators = unique(holder[inside])
        traced = tuple(names[number].removeprefix("aten::") for number in name[rows[operators]])
        if traced not in aligned:
            aligned[traced] = _aligned(traced, wanted)
        of_operator[operators] = aligned[traced]
        of_launch[inside] = of_operator[holder[inside]]
    order = np.lexsort((found.start, found.thread))
    order = order[of_operator[order] >= 0]
    matched = Nesting(*(v[order] for v in (found.start, found.end, found.thread, found.level)))
    return Lines(work, ops, of_launch, matched, of_operator[order])


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


def forward_operators(work: Work) -> Ints:
    """For each launch the row of `work.operators` that made the autograd node in which it runs; -1
    outside of a backward, in a forward that a backward runs again, and where the trace does not
    number its operators.

    Several operators may have the number of a node: the last one to begin increased it.
    """
    ops = work.operators
    number, forward_thread = ints(ops, c.SEQUENCE), ints(ops, c.FORWARD_THREAD)
    start, end, tid = (ints(ops, column) for column in (c.START, c.END, c.TID))
    numbered = np.flatnonzero(number >= 0)
    forward = numbered[forward_thread[numbered] == 0]
    nesting = Nesting.of(start[numbered], end[numbered], tid[numbered])
    holder = nesting.innermost(ints(work.launches, c.START), ints(work.launches, c.TID))
    in_backward = np.append(forward_thread[numbered] > 0, False)[holder]
    rows = numbered[holder[in_backward]]
    found = last_begun(start[forward], number[forward], start[rows], number[rows])
    made = np.full(len(holder), -1)
    made[in_backward] = np.append(forward, -1)[found]
    return made


def _aligned(traced: Sequence[str], wanted: Sequence[str]) -> Ints:
    """For each traced operator its place in the inspected order, -1 for none."""
    places = np.full(len(traced), -1, np.int64)
    matcher = SequenceMatcher(None, traced, wanted, autojunk=False)
    for block in matcher.get_matching_blocks():
        places[block.a : block.a + block.size] = np.arange(block.b, block.b + block.size)
    return places


def _base(op: str) -> str:
    """ "add_" of "aten.add_.Tensor"."""
    parts = op.split(".")
    return parts[1] if len(parts) > 1 else op
