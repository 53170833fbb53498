"""The generator of large traces: what it writes is read back with the answers it promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.analysis import profile_of_trace
from launchscope.parser import read_trace
from launchscope.parser.sources import Reading
from tests.benchmarks.synthetic import BETWEEN_NS, LAUNCHES, LAYOUTS, PERIOD_NS, write
from tests.builders import traced_iteration_ms


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
@pytest.mark.parametrize("marks", [True, False])
def test_a_synthetic_trace_has_the_answers_it_promises(
    tmp_path: Path, name: str, marks: bool
) -> None:
    path = tmp_path / name
    answers = write(path, 4, marks=marks)
    read = read_trace(path, Reading(op_names=False))
    assert not read.damage.any
    found = profile_of_trace(read, name)
    assert found.step is not None
    assert found.step.boundary == ("marker" if marks else "launches")
    assert found.value("launches_per_step") == LAUNCHES
    assert found.value("gpu_busy_ms") == answers.step_busy_ns / 1e6
    period_ms = (LAUNCHES * PERIOD_NS + BETWEEN_NS) / 1e6
    if marks:  # a gap in front of a step found by its launches is that step's
        assert traced_iteration_ms(read) == pytest.approx(period_ms)
    whole = profile_of_trace(read, name, step_from="none")
    assert whole.value("launches_per_step") == answers.launches
    assert whole.value("gpu_busy_ms") == pytest.approx(answers.busy_ns / 1e6, abs=1e-9)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_synthetic_trace_holds_the_same_in_every_layout(tmp_path: Path, layout: str) -> None:
    path = tmp_path / "t.json"
    answers = write(path, 3, layout=layout)
    read = read_trace(path)
    assert not read.damage.any
    found = profile_of_trace(read, "t.json")
    assert found.value("launches_per_step") == LAUNCHES
    assert found.value("gpu_busy_ms") == answers.step_busy_ns / 1e6
    assert read.device_name == "Imaginary GPU"
