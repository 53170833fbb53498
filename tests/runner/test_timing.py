"""Which steps of the timing pass have a CUDA event at their begin; events stand in for CUDA's."""

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from launchscope.analysis.timing import step_times
from launchscope.model import Schedule, StepKind, TimingResult
from launchscope.runner.passes import timing as timing_module
from tests.runner.steps import context_of

STEPS = 30


class Event:
    """Its time is how many events were recorded before it."""

    clock = count(1)

    def __init__(self) -> None:
        self.at = 0

    def record(self) -> None:
        self.at = next(Event.clock)

    def elapsed_time(self, other: "Event") -> float:
        return float(other.at - self.at)


class Timed:
    """A timing pass over steps whose host time is `host_ms`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch):
        self.now = 0
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
        monkeypatch.setattr(
            timing_module, "timing_events", lambda _, n: [Event() for _ in range(n)]
        )
        monkeypatch.setattr(timing_module, "perf_counter_ns", lambda: self.now)
        self.context = context_of(folder, torch.nn.Linear(1, 1))
        self.context.schedule = Schedule(timing=STEPS)

    def run(
        self, host_ms: float, kinds: tuple[StepKind, ...] = (), steps: int = STEPS
    ) -> TimingResult:
        self.context.boundary = replace(self.context.boundary, kinds=kinds)
        entry = timing_module.TimingPass()
        entry.start(self.context)
        for _ in range(steps):
            entry.begin()
            self.now += round(host_ms * 1e6)
            done = entry.end()
        result: Any = entry.finish(complete=done)
        assert isinstance(result, TimingResult)
        return result


@pytest.fixture
def timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Timed:
    return Timed(tmp_path, monkeypatch)


def begun(result: TimingResult) -> list[bool]:
    return [begin is not None for begin in result.gpu_begin_ms]


def test_of_three_short_steps_in_a_row_one_has_an_event_at_its_begin(timed: Timed) -> None:
    result = timed.run(host_ms=2.0)
    has = begun(result)
    assert [sum(has[at : at + 3]) for at in range(0, STEPS, 3)] == [1] * (STEPS // 3)
    assert len(result.gpu_end_ms) == STEPS


def test_they_do_not_keep_time_with_the_script(timed: Timed) -> None:
    has = begun(timed.run(host_ms=2.0))
    assert all(any(has[place::3]) for place in range(3))


def test_of_a_pass_that_the_script_cuts_short_the_first_step_has_one(timed: Timed) -> None:
    result = timed.run(host_ms=2.0, steps=1)
    assert begun(result) == [True]
    assert len(step_times(result).step) == 1


def test_long_steps_all_have_one(timed: Timed) -> None:
    assert all(begun(timed.run(host_ms=5.0)))


def test_steps_of_several_kinds_all_have_one(timed: Timed) -> None:
    kinds = (StepKind("prefill", "(1,)", 50.0), StepKind("decode", "(2,)", 50.0))
    assert all(begun(timed.run(host_ms=2.0, kinds=kinds)))


def test_iterations_are_known_of_every_step_and_steps_where_both_ends_are(timed: Timed) -> None:
    result = timed.run(host_ms=2.0)
    times = step_times(result)
    assert len(times.iteration) == STEPS - 1
    assert len(times.step) == sum(begun(result)) == STEPS // 3
    assert set(times.step) == {1.0}  # an event at the begin is followed by the one at the end
