"""Which steps of the timing pass have a CUDA event at their begin; events stand in for CUDA's."""

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from launchscope.analysis.timing import StepTimes, step_times
from launchscope.model import Schedule, StepKind, TimingResult
from launchscope.runner.child.passes import all_passes
from launchscope.runner.child.passes import timing as timing_module
from launchscope.runner.child.passes.timing_second import SecondTimingPass
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
        self.context.step_s = host_ms / 1e3
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


def test_one_of_three_short_steps_has_an_event_at_its_beginning(timed: Timed) -> None:
    result = timed.run(host_ms=2.0)
    has = begun(result)
    assert [sum(has[at : at + 3]) for at in range(0, STEPS, 3)] == [1] * (STEPS // 3)
    assert len(result.gpu_end_ms) == STEPS


def test_steps_with_an_event_do_not_follow_a_rhythm(timed: Timed) -> None:
    has = begun(timed.run(host_ms=2.0))
    assert all(any(has[place::3]) for place in range(3))


def test_the_first_step_has_an_event_even_if_it_is_the_only_one(timed: Timed) -> None:
    result = timed.run(host_ms=2.0, steps=1)
    assert begun(result) == [True]
    assert len(times_of(result).step) == 1


def test_every_long_step_has_an_event_at_its_beginning(timed: Timed) -> None:
    assert all(begun(timed.run(host_ms=5.0)))


def test_every_step_has_an_event_if_there_are_several_kinds(timed: Timed) -> None:
    kinds = (StepKind("prefill", None, 50.0), StepKind("decode", None, 50.0))
    assert all(begun(timed.run(host_ms=2.0, kinds=kinds)))


def test_iterations_are_known_for_every_step_and_step_times_where_both_ends_are(
    timed: Timed,
) -> None:
    result = timed.run(host_ms=2.0)
    times = times_of(result)
    assert len(times.iteration) == STEPS - 1
    assert len(times.step) == sum(begun(result)) == STEPS // 3
    assert set(times.step) == {1.0}  # an event at the begin is followed by the one at the end


def test_the_second_timing_window_takes_half_as_many_steps() -> None:
    assert SecondTimingPass.steps(Schedule(timing=STEPS)) == STEPS // 2
    assert SecondTimingPass.steps(Schedule(timing=STEPS, replay=0)) == 0


def test_the_second_timing_window_comes_after_everything_a_short_script_needs() -> None:
    # After the smaller scopes too: what is left then shows the parent that everything else is done.
    assert all_passes()[-1] is SecondTimingPass
    assert not SecondTimingPass.info().worth_another_run


def test_timing_windows_that_agree_are_joined() -> None:
    times = step_times([timing(iteration_ms=3.0), timing(steps=15, iteration_ms=3.2)])
    assert times is not None
    assert not times.unsteady
    assert len(times.iteration) == 29 + 14  # the time between two windows is no iteration
    assert times.steps == 30


@pytest.mark.parametrize("disturbed_first", [True, False])
def test_the_faster_of_two_timing_windows_that_disagree_counts(disturbed_first: bool) -> None:
    windows = [timing(iteration_ms=4.5), timing(steps=15, iteration_ms=3.0)]
    if not disturbed_first:
        windows = [timing(iteration_ms=3.0), timing(steps=15, iteration_ms=4.5)]
    times = step_times(windows)
    assert times is not None
    assert times.unsteady
    assert set(times.iteration.round(6)) == {3.0}
    assert sorted(times.windows_ms) == pytest.approx([3.0, 4.5])


def test_timing_windows_with_a_wide_spread_do_not_disagree() -> None:
    wide = timing(iteration_ms=3.0, jitter_ms=1.5)  # every other iteration is longer
    times = step_times([wide, timing(steps=15, iteration_ms=3.7)])
    assert times is not None
    assert not times.unsteady


def test_a_timing_window_of_two_or_three_steps_does_not_count() -> None:
    times = step_times([timing(iteration_ms=4.5), timing(steps=4, iteration_ms=3.0)])
    assert times is not None
    assert not times.unsteady


def test_timing_windows_of_different_steps_are_joined() -> None:
    windows = [timing(iteration_ms=4.5), timing(steps=15, iteration_ms=3.0)]
    times = step_times(windows, alike=False)
    assert times is not None
    assert not times.unsteady
    assert len(times.iteration) == 43


def test_without_a_timing_window_there_are_no_times() -> None:
    assert step_times([]) is None


def test_a_timing_window_that_was_cut_short_has_no_wall_clock_check() -> None:
    whole = timing(steps=15)
    behind = replace(whole, host_close_ns=whole.host_open_ns + 1_000_000)
    times = step_times([behind])
    assert times is not None
    assert times.wall_check_pct is not None
    cut = step_times([replace(behind, complete=False)])
    assert cut is not None
    assert cut.wall_check_pct is None


def test_the_only_step_of_a_window_has_an_iteration(timed: Timed) -> None:
    times = times_of(timed.run(host_ms=2.0, steps=1))
    assert times.iteration_ms == 2.0  # from the event of the window to the one at the step's end
    assert times.step_ms == 1.0
    assert list(times.host_iteration) == [2.0]
