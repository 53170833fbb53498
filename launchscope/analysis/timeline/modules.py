"""The module, or the range of the person's, around each launch, and the operator."""

from __future__ import annotations

import numpy as np

from launchscope.analysis.steps.iterations import DATA_RANGE, STEP_MARKS
from launchscope.analysis.timeline.intervals import Nesting
from launchscope.analysis.timeline.work import Work
from launchscope.model import CALIBRATION_RANGE, SAME_FLAGS_RANGE, OverheadRow
from launchscope.parser import columns as c
from launchscope.parser.trace import Ints, ints, numbered, where

# How torch.profiler names the calls of modules.
_MODULE = "nn.Module: "
# How the autograd engine names what it runs: the node's own name follows.
_ENGINE = "autograd::engine::evaluate_function: "
# Ranges that no person wrote: ours, and torch's around its data loaders and optimizers.
OWN_RANGES = (*STEP_MARKS, CALIBRATION_RANGE, SAME_FLAGS_RANGE)
_NOT_THE_PERSONS = (*OWN_RANGES, DATA_RANGE, "Optimizer.")

# Ranges of nsys may overlap, and then lie in one another a thousand times.
_MOST_LEVELS = 100


def module_sources(work: Work, time: Ints, thread: Ints) -> tuple[list[OverheadRow], Ints]:
    """The modules of the trace with those around them, and the number of the innermost one at each
    time of a thread. A trace that names no modules has ranges in their place."""
    table = work.python_calls[where(work.python_calls[c.NAME], _is_module)]
    if not len(table):
        ranges = work.iterations.of_process(work.trace.ranges)
        table = ranges[~where(ranges[c.NAME], lambda name: name.startswith(_NOT_THE_PERSONS))]
        # Marks of another name: what holds one whole step.
        first = np.searchsorted(work.iterations.step_begin, ints(table, c.START))
        held = np.searchsorted(work.iterations.end, ints(table, c.END), "right") - first
        table = table[held != 1]
    nesting = Nesting.of(*(ints(table, column) for column in (c.START, c.END, c.TID)))
    number, stacks = _stacks(nesting, *numbered(table, c.NAME))
    rows = [OverheadRow(stack[-1], 0.0, None, stack=stack) for stack in stacks]
    return rows, np.append(number, -1)[nesting.innermost(time, thread)]


def operator_sources(work: Work) -> tuple[list[OverheadRow], Ints]:
    """The operators of the trace, and the number of the outermost one around each launch."""
    ops = work.operators
    name, names = numbered(ops, c.NAME)
    nesting = Nesting.of(*(ints(ops, column) for column in (c.START, c.END, c.TID)))
    holder = nesting.at_level(1, ints(work.launches, c.START), ints(work.launches, c.TID))
    rows = [OverheadRow(text.removeprefix(_ENGINE), 0.0, None) for text in names]
    return rows, np.append(name, -1)[holder]


def _is_module(name: str) -> bool:
    return name.startswith(_MODULE)


def _stacks(nesting: Nesting, name: Ints, names: list[str]) -> tuple[Ints, list[tuple[str, ...]]]:
    """The number of the stack of names around each interval, and the stacks by number."""
    number, stacks = np.full(len(name), -1), list[tuple[str, ...]]()
    for level in range(1, min(int(nesting.level.max(initial=0)), _MOST_LEVELS) + 1):
        rows = np.flatnonzero(nesting.level == level)
        start, thread = nesting.start[rows], nesting.thread[rows]
        outer = np.append(number, -1)[nesting.at_level(level - 1, start, thread)]
        kinds, kind = np.unique((outer + 1) * len(names) + name[rows], return_inverse=True)
        number[rows] = len(stacks) + kind
        for above, own in zip(*divmod(kinds, len(names))):
            around = stacks[above - 1] if above else ()
            stacks.append((*around, names[own].removeprefix(_MODULE)))
    return number, stacks
