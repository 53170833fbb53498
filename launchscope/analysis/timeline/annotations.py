"""What the analysis found in a trace, as intervals on its clock, for every iteration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from msgspec import Struct

from launchscope.analysis.timeline.timeline import CAUSES, idle_gaps, iteration_spans
from launchscope.analysis.timeline.work import Work
from launchscope.parser import columns as c
from launchscope.parser.trace import Bools, Ints, Texts, Trace

SpanKind = Literal["iteration", "step", "gpu", "idle"]


class Spans(Struct, frozen=True, eq=False):
    """Disjoint intervals of one kind, and the row of the iteration of each; -1 for none.

    - iteration and step: on the host;
    - gpu: an iteration from the end of the one before;
    - idle: `names` are its causes. A gap with several is one interval for each of them, side by
      side: when each of them happened is not known.
    """

    kind: SpanKind
    start: Ints
    end: Ints
    iteration: Ints
    names: Texts | None = None


class Annotations(Struct, frozen=True, eq=False):
    """Of one process (None: not known) and one device of a trace. Iterations that are not `used`
    are in no figure."""

    trace: Trace
    process: int | None
    device: int
    used: Bools
    lanes: tuple[Spans, ...]


def annotate(work: Work) -> Annotations:
    """All iterations of the trace."""
    trace, windows = work.trace, work.iterations
    return Annotations(
        trace,
        windows.pid,
        int(work.activities[c.DEVICE][0]),
        np.isin(np.arange(len(windows)), windows.used),
        tuple(lane for lane in _lanes(work) if len(lane.start)),
    )


def _lanes(work: Work) -> Iterator[Spans]:
    windows, rows = work.iterations, np.arange(len(work.iterations))
    yield Spans("iteration", windows.begin, windows.end, rows)
    yield Spans("step", windows.step_begin, windows.end, rows)
    begin, end = iteration_spans(work)
    known = end > begin
    yield Spans("gpu", begin[known], end[known], rows[known])
    gaps = next(idle_gaps(work))
    begin, end, cause, gap = gaps.by_cause(np.flatnonzero(gaps.group >= 0))
    yield Spans("idle", begin, end, gaps.group[gap], Texts(cause, CAUSES))
