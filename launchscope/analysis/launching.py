"""How the traced steps launched their work, added to a Profile whose metrics are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from launchscope.analysis.replay_model.gain import TracedSteps
from launchscope.analysis.timeline.histograms import histograms_of
from launchscope.analysis.timeline.lines import Lines
from launchscope.analysis.timeline.modules import (
    function_sources,
    module_sources,
    operator_sources,
)
from launchscope.analysis.timeline.overhead import overhead_rows
from launchscope.analysis.timeline.queue_depth import queue_depth
from launchscope.analysis.timeline.streams import stream_rows
from launchscope.model import OverheadRow, Profile
from launchscope.parser import columns as c
from launchscope.parser.trace import Ints, ints


def with_launching(profile: Profile, traced: TracedSteps, lines: Lines) -> Profile:
    """The Profile with what shows how its work was launched, and by what."""
    work, launches = traced.work, traced.work.launches
    overhead_ms = profile.value("launch_overhead_ms")

    def split(sources: list[OverheadRow], source: Ints) -> tuple[OverheadRow, ...] | None:
        return overhead_rows(work, traced.timeline, overhead_ms, sources, source)

    # What a backward launches counts where the forward was.
    made, forward = lines.forward >= 0, lines.forward
    time, thread = (
        np.where(made, np.append(ints(work.operators, column), 0)[forward], ints(launches, column))
        for column in (c.START, c.TID)
    )
    # The inspection knows lines and modules; a trace by itself may hold Python's calls.
    by_line, by_module = lines.line_sources(), lines.module_sources()
    if not by_line[0]:
        by_line = function_sources(work, time, thread)
    if not by_module[0]:
        by_module = module_sources(work, time, thread)
    return replace(
        profile,
        histograms=histograms_of(lines),
        queue_depth=queue_depth(work, traced.timeline),
        streams=stream_rows(work),
        overhead_by_line=split(*by_line),
        overhead_by_module=split(*by_module),
        launches_by_operator=split(*operator_sources(work)),
    )
