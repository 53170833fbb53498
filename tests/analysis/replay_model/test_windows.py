"""The iteration under replay where the script's own loop ran in windows."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import comb
from pathlib import Path
from typing import Any

import pytest

from launchscope.analysis import build_profile
from launchscope.model import InspectResult, LoopResult, Profile, Reason, ReplayResult
from launchscope.model.medians import median_interval
from tests.builders import known, recording, timing

REPLAY = ReplayResult(
    "measured",
    eager_bursts=((2.5, 2.5), (2.5,)),
    replay_bursts=((0.5, 0.5), (0.5,)),
    capture_ms=30.0,
)
LOOP = LoopResult("measured", None, (4.0, 4.2, 4.1, 3.9), (1.0, 1.2, 1.0, 1.1))


def built(folder: Path, loop: LoopResult | None = LOOP, **others: Any) -> Profile:
    results = {"timing": timing(iteration_ms=3.0, step_ms=2.5), "replay": REPLAY, **others}
    return build_profile(replace(recording(folder), replayed_loop=loop, **results))


def test_both_iterations_are_those_of_the_windows(tmp_path: Path) -> None:
    profile = built(tmp_path)
    eager, replayed = profile.metrics["iteration_ms"], profile.metrics["replayed_iteration_ms"]
    assert (eager.value, eager.samples) == (4.05, LOOP.eager_ms)
    assert (replayed.value, replayed.samples) == (1.05, LOOP.replayed_ms)
    assert profile.iteration_source == "measured"
    assert profile.value("iteration_speedup") == pytest.approx(4.05 / 1.05)
    assert profile.value("break_even_steps") == 10


def test_the_step_is_that_of_the_same_windows(tmp_path: Path) -> None:
    """The timing pass is some seconds older, and its step may be longer than their iterations."""
    profile = built(tmp_path, replace(LOOP, eager_step_ms=(3.5, 3.7, 3.6, 3.4)))
    assert profile.value("step_ms") == pytest.approx(3.55)
    assert built(tmp_path).value("step_ms") == pytest.approx(2.5)


def test_the_bounds_are_those_of_neighboring_windows_alone(tmp_path: Path) -> None:
    removable = built(tmp_path).metrics["removable_pct"]
    assert removable.value == pytest.approx(100 * 3.0 / 4.05)
    assert removable.low == pytest.approx(100 * (1 - 1.2 / 4.2))
    assert removable.high == pytest.approx(100 * (1 - 1.0 / 4.1))


def test_a_machine_that_slows_both_kinds_of_windows_down_does_not_widen_the_bounds(
    tmp_path: Path,
) -> None:
    slow = LoopResult("measured", None, (4.0, 8.0, 12.0, 4.0), (1.0, 2.0, 3.0, 1.0))
    removable = built(tmp_path, slow).metrics["removable_pct"]
    assert known(removable.high) - known(removable.low) < 1


@pytest.mark.parametrize("count", range(1, 25))
def test_the_interval_holds_the_median_in_at_least_95_percent_of_the_cases(count: int) -> None:
    low, high = median_interval(list(range(count)))
    assert high == count - 1 - low
    missed = 2 * sum(comb(count, below) for below in range(int(low) + 1)) / 2**count
    assert missed <= 0.05 or low == 0
    one_less = missed + 2 * comb(count, int(low) + 1) / 2**count
    assert one_less > 0.05 or count < 6


def inspected(ops: int) -> InspectResult:
    return InspectResult(1, ("",), ((),), (ops,), ())


def test_operations_that_run_beside_the_graph_too_cost_no_time_of_a_loop_with_a_graph(
    tmp_path: Path,
) -> None:
    # 4 of 100 operations: 4 % of the 2.5 ms that the host takes for a step.
    loop = replace(LOOP, own_ops=4)
    less = built(tmp_path, loop, inspect=inspected(100))
    assert less.value("replayed_iteration_ms") == pytest.approx(1.05 - 0.1)
    # Where the GPU is the limit, they cost none.
    busy = replace(REPLAY, replay_bursts=((1.2, 1.2),))
    limited = built(tmp_path, loop, inspect=inspected(100), replay=busy)
    assert limited.value("replayed_iteration_ms") == pytest.approx(1.05)


def test_with_a_tenth_of_the_operations_beside_the_graph_the_replay_is_subtracted(
    tmp_path: Path,
) -> None:
    profile = built(tmp_path, replace(LOOP, own_ops=10), inspect=inspected(100))
    assert profile.iteration_source == "subtracted"
    assert profile.value("iteration_ms") == pytest.approx(3.0)
    assert profile.value("replayed_iteration_ms") == pytest.approx(1.0)


@pytest.mark.parametrize(
    "loop", [None, LoopResult("skipped", Reason("script_ended")), LoopResult("measured")]
)
def test_without_windows_the_replay_is_subtracted(tmp_path: Path, loop: LoopResult | None) -> None:
    assert built(tmp_path, loop).iteration_source == "subtracted"


def test_a_loader_that_delivers_in_bursts_counts_as_what_the_person_waits_for(
    tmp_path: Path,
) -> None:
    bursts = timing(iteration_ms=3.0, step_ms=2.5, jitter_ms=9.0)
    waiting = LoopResult("measured", None, (24.0, 24.4, 24.2), (24.1, 24.0, 24.3))
    profile = built(tmp_path, waiting, timing=bursts)
    assert profile.value("iteration_ms") == pytest.approx(24.2)
    assert abs(known(profile.value("removable_pct"))) < 1


def test_batches_of_workers_come_in_bursts_and_count_in_windows(tmp_path: Path) -> None:
    bursts = timing(iteration_ms=3.0, step_ms=2.5)
    ends = [3.0 * step + 60.0 * (step // 10) for step in range(1, 31)]  # three bursts of ten
    bursts = replace(bursts, gpu_end_ms=tuple(ends), gpu_begin_ms=tuple(e - 2.5 for e in ends))
    alone = built(tmp_path, None, timing=bursts)
    assert alone.value("iteration_ms") == pytest.approx(3.0)
    fed = built(tmp_path, None, timing=replace(bursts, loader_workers=2))
    assert known(fed.value("iteration_ms")) > 9.0


def test_every_pair_of_windows_lies_within_few_pairs() -> None:
    for values in product((1.0, 2.0, 3.0), repeat=3):
        assert median_interval(values) == (min(values), max(values))
