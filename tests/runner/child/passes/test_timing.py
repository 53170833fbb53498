"""Which steps of the timing pass have a CUDA event at their begin; events stand in for CUDA's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from launchscope.analysis.timing import step_times
from launchscope.model import Schedule, StepKind, TimingResult
from launchscope.runner.child.passes import timing as timing_module
from tests.runner.steps import context_of

STEPS = 30
KINDS = (StepKind("prefill", None, 50.0), StepKind("decode", None, 50.0))


class Event:
    """Its time is how many events were recorded before it."""

    clock = count(1)

    def __init__(self) -> None:
        self.at = 0

    def record(self) -> None:
        self.at = next(Event.clock)

    def elapsed_time(self, other: Event) -> float:
        return float(other.at - self.at)


Timed = Callable[..., TimingResult]


@pytest.fixture
def timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Timed:
    """A timing pass over so many steps, whose host time is `host_ms`."""
    now = 0
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(timing_module, "timing_events", lambda _, n: [Event() for _ in range(n)])
    monkeypatch.setattr(timing_module, "perf_counter_ns", lambda: now)
    context = context_of(tmp_path, torch.nn.Linear(1, 1))
    context.schedule = Schedule(timing=STEPS)

    def run(host_ms: float, kinds: tuple[StepKind, ...] = (), steps: int = STEPS) -> TimingResult:
        nonlocal now
        context.step_s = host_ms / 1e3
        context.boundary = replace(context.boundary, kinds=kinds)
        entry: Any = timing_module.TimingPass()
        entry.start(context)
        done = False
        for _ in range(steps):
            entry.begin()
            now += round(host_ms * 1e6)
            done = entry.end()
        result: TimingResult = entry.finish(complete=done)
        return result

    return run


def begun(result: TimingResult) -> list[bool]:
    return [begin is not None for begin in result.gpu_begin_ms]


def test_one_of_three_short_steps_has_an_event_at_its_beginning_in_no_rhythm(timed: Timed) -> None:
    result = timed(host_ms=2.0)
    has = begun(result)
    assert [sum(has[at : at + 3]) for at in range(0, STEPS, 3)] == [1] * (STEPS // 3)
    assert all(any(has[place::3]) for place in range(3))
    times = step_times(result)
    assert len(times.iteration) == STEPS - 1
    assert len(times.step) == sum(has)
    assert set(times.step) == {1.0}  # an event at the begin is followed by the one at the end


def test_every_long_step_and_every_step_of_several_kinds_has_an_event_at_its_beginning(
    timed: Timed,
) -> None:
    assert all(begun(timed(host_ms=5.0)))
    assert all(begun(timed(host_ms=2.0, kinds=KINDS)))
