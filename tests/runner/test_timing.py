"""Which steps of the timing pass have a CUDA event at their begin; events stand in for CUDA's."""

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from launchscope.analysis.timing import StepTimes, step_times
from launchscope.model import Schedule, StepKind, TimingResult
from launchscope.runner.passes import all_passes
from launchscope.runner.passes import timing as timing_module
from launchscope.runner.passes.timing_second import LIVE_UNSTEADY, SecondLook
from launchscope.runner.passes.timing_third import ThirdLook
from tests.builders import timing
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


def times_of(result: TimingResult) -> StepTimes:
    times = step_times([result])
    assert times is not None
    return times


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
    assert len(times_of(result).step) == 1


def test_long_steps_all_have_one(timed: Timed) -> None:
    assert all(begun(timed.run(host_ms=5.0)))


def test_steps_of_several_kinds_all_have_one(timed: Timed) -> None:
    kinds = (StepKind("prefill", "(1,)", 50.0), StepKind("decode", "(2,)", 50.0))
    assert all(begun(timed.run(host_ms=2.0, kinds=kinds)))


def test_iterations_are_known_of_every_step_and_steps_where_both_ends_are(timed: Timed) -> None:
    result = timed.run(host_ms=2.0)
    times = times_of(result)
    assert len(times.iteration) == STEPS - 1
    assert len(times.step) == sum(begun(result)) == STEPS // 3
    assert set(times.step) == {1.0}  # an event at the begin is followed by the one at the end


def looked(timed: Timed, first_ms: float) -> bool:
    """Whether a second look that sees 1 ms an iteration disagrees with the first."""
    ends = [first_ms * step for step in range(STEPS)]
    timed.context.results["timing"] = {"gpu_end_ms": ends}
    second = SecondLook()
    assert second.steps(timed.context) == STEPS // 2
    second.start(timed.context)
    for _ in range(STEPS // 2):
        second.begin()
        timed.now += 5_000_000
        done = second.end()
    assert done
    assert len(second.finish(complete=True).gpu_end_ms) == STEPS // 2
    return LIVE_UNSTEADY in timed.context.live


def test_a_second_look_that_agrees_wants_no_third(timed: Timed) -> None:
    assert not looked(timed, 2.04)  # an event at each end of a step: two ticks an iteration


@pytest.mark.parametrize("first_ms", [1.8, 2.2])
def test_looks_that_disagree_want_a_third_of_as_many_steps_as_the_first(
    timed: Timed, first_ms: float
) -> None:
    assert looked(timed, first_ms)
    assert ThirdLook.needs == LIVE_UNSTEADY
    assert ThirdLook().steps(timed.context) == STEPS


def test_a_first_look_that_is_too_short_says_nothing(timed: Timed) -> None:
    timed.context.results["timing"] = {"gpu_end_ms": [1.0]}
    second = SecondLook()
    second.start(timed.context)
    second.begin()
    second.end()
    second.finish(complete=False)
    assert LIVE_UNSTEADY not in timed.context.live


def test_the_looks_are_apart_in_time() -> None:
    names = [kind.name for kind in all_passes()]
    order = [names.index(n) for n in ("timing", "trace", "timing_second", "replay", "verify")]
    assert order == sorted(order)
    assert names.index("timing_third") > names.index("verify")


def test_most_steps_outvote_a_look_that_was_disturbed() -> None:
    calm, disturbed = timing(steps=30, iteration_ms=3.0), timing(steps=30, iteration_ms=4.5)
    half = timing(steps=15, iteration_ms=3.0)
    times = step_times([disturbed, half, calm])
    assert times is not None
    assert float(np.median(times.iteration)) == pytest.approx(3.0)
    assert times.looks_ms == pytest.approx((4.5, 3.0, 3.0))
    assert times.steps == 75
    assert len(times.iteration) == 72  # the time between two looks is no iteration


def test_without_a_look_nothing_was_timed() -> None:
    assert step_times([]) is None
