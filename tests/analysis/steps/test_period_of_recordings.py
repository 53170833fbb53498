"""Steps found without marks in recordings, against the marks that were taken out of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from launchscope.analysis.steps.steps import steps_of
from launchscope.analysis.timeline.work import gather
from launchscope.model import CALIBRATION_RANGE
from launchscope.parser import columns as c
from launchscope.parser import read_trace
from launchscope.parser.launches import find_launches
from launchscope.parser.trace import Trace, where

RECORDINGS = sorted((Path(__file__).parents[3] / "sample_workloads/recordings").iterdir())
# The size of a mask decides which kernels run: no two of its steps are alike.
WITHOUT_PERIOD = {"data_dependent"}


def without_marks(trace: Trace) -> Trace:
    """The steps alone: no marks, and nothing of the profiler's own calibration loop."""
    names = trace.ranges[c.NAME]
    end = trace.ranges[c.START][names == CALIBRATION_RANGE].min()
    calls = trace.calls[trace.calls[c.START] < end]
    launched = np.isin(trace.activities[c.CORRELATION], calls[c.CORRELATION])
    ranges = trace.ranges[~where(names, lambda name: name.startswith("launchscope"))]
    return replace(trace, calls=calls, activities=trace.activities[launched], ranges=ranges)


@pytest.mark.parametrize("folder", RECORDINGS, ids=lambda folder: folder.name)
def test_the_period_of_the_launches_is_the_marked_iteration(folder: Path) -> None:
    trace = read_trace(folder / "trace.kineto.json.gz")
    joined = find_launches(trace)
    marked = gather(trace, steps_of(trace, joined).iterations, joined)
    inside = marked.iteration[np.isin(marked.iteration, marked.iterations.used)]
    wanted = int(np.median(np.bincount(inside)[marked.iterations.used]))
    bare = without_marks(trace)
    found = steps_of(bare, find_launches(bare))
    if folder.name in WITHOUT_PERIOD:
        assert found.boundary.boundary == "none"
        return
    assert (found.boundary.boundary, found.boundary.launches) == ("launches", wanted)
