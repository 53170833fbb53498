"""Which operator of the forward made the part of the backward that a launch belongs to."""

from __future__ import annotations

import numpy as np

from launchscope.analysis.timeline.nesting import Nesting, last_begun
from launchscope.analysis.timeline.work import Work
from launchscope.parser import columns as c
from launchscope.parser.trace import Ints, ints


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
