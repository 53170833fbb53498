"""The forward behind a backward's launches, against the arrows that Kineto draws itself."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from launchscope.analysis.steps.iterations import find_iterations
from launchscope.analysis.timeline.intervals import last_begun
from launchscope.analysis.timeline.lines import forward_operators
from launchscope.analysis.timeline.work import gather
from launchscope.parser import columns as c
from launchscope.parser import read_trace
from launchscope.parser.trace import Ints, ints

RECORDINGS = Path(__file__).parents[3] / "sample_workloads" / "recordings"
TRAINED = ["small_gpt", "convnet", "lstm", "gan", "torch_compile", "variable_lengths"]


def ns(events: list[dict[str, Any]]) -> Ints:
    return np.array([round(event["ts"] * 1000) for event in events], np.int64)


@pytest.mark.parametrize("name", TRAINED)
def test_launches_of_a_backward_belong_to_the_forward_that_an_arrow_of_the_trace_comes_from(
    name: str,
) -> None:
    file = RECORDINGS / name / "trace.kineto.json.gz"
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    arrows = [event for event in events if event.get("cat") == "fwdbwd"]
    begin = {event["id"]: event for event in arrows if event["ph"] == "s"}
    end = [event for event in arrows if event["ph"] == "f"]
    read = read_trace(file)
    iterations = find_iterations(read)
    assert iterations is not None
    work = gather(read, iterations)
    found = forward_operators(work)
    made = np.flatnonzero(found >= 0)
    call, thread = (ints(work.launches, column)[made] for column in (c.START, c.TID))
    threads = np.array([event["tid"] for event in end], np.int64)
    arrow = last_begun(ns(end), threads, call, thread)
    assert len(made) > 100
    assert (arrow >= 0).all()
    from_ = ns([begin[end[row]["id"]] for row in arrow])
    assert (np.abs(ints(work.operators, c.START)[found[made]] - from_) <= 1).all()
