"""The operator behind each launch."""

from __future__ import annotations

import numpy as np

from launchscope.analysis.timeline.nesting import Nesting
from launchscope.analysis.timeline.work import Work
from launchscope.model import OverheadRow
from launchscope.parser import columns as c
from launchscope.parser.trace import Ints, ints, numbered

# How the autograd engine names what it runs: the node's own name follows.
_ENGINE = "autograd::engine::evaluate_function: "


def operator_sources(work: Work) -> tuple[list[OverheadRow], Ints]:
    """The operators of the trace, and the number of the outermost one around each launch."""
    ops = work.operators
    name, names = numbered(ops, c.NAME)
    nesting = Nesting.of(*(ints(ops, column) for column in (c.START, c.END, c.TID)))
    holder = nesting.at_level(1, ints(work.launches, c.START), ints(work.launches, c.TID))
    rows = [OverheadRow(text.removeprefix(_ENGINE), 0.0, None) for text in names]
    return rows, np.append(name, -1)[holder]
