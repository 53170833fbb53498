"""The time left: from the passes that are over and the plan."""

from __future__ import annotations

import time

import pytest

from launchscope.model import Reason, Schedule
from launchscope.runner.parent.time_left import TimeLeft
from launchscope.runner.protocol.events import (
    WARMUP,
    DeviceKnown,
    MeasuringEnded,
    PassEnded,
    PassProgress,
    PassSkipped,
    PassStarted,
)
from launchscope.runner.protocol.passes import PASSES

PLANNED = [kind for kind in PASSES.values() if kind.steps(Schedule()) > 0]
STEPS = {kind.name: kind.steps(Schedule()) for kind in PLANNED if kind.part_of is None}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def on_gpu() -> TimeLeft:
    made = TimeLeft(PLANNED, Schedule())
    for event in (PassStarted(WARMUP, 10), PassEnded(WARMUP, 60.0), DeviceKnown(True)):
        made.on_event(event)
    return made


def test_before_the_first_step_of_a_pass_nothing_is_known(clock: list[float]) -> None:
    given = on_gpu()
    assert given.seconds() is None
    given.on_event(PassStarted("timing", 30))
    assert given.seconds() is None
    assert (given.number, given.passes) == (1, len(STEPS))


def test_every_step_that_is_left_takes_as_long_as_those_before(clock: list[float]) -> None:
    given = on_gpu()
    given.on_event(PassStarted("timing", 30))
    clock[0] += 20
    given.on_event(PassProgress("timing", 10, 30))
    later = sum(STEPS.values()) - STEPS["timing"]
    assert given.seconds() == 2.0 * (20 + later)
    clock[0] += 40
    given.on_event(PassEnded("timing", 60.0))
    assert given.seconds() == 2.0 * later


def test_passes_that_will_not_run_do_not_count(clock: list[float]) -> None:
    given = on_gpu()
    given.on_event(PassStarted("timing", 30))
    given.on_event(PassSkipped("replay", Reason("hung")))
    left = list(STEPS)[list(STEPS).index("replay") + 1 :]
    assert given.passes == 1 + len(left)
    given.on_event(MeasuringEnded())
    assert given.seconds() is None
