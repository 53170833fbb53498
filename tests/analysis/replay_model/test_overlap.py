"""Streams side by side in a replay: what waits for what, and what sharing the device costs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from launchscope.analysis.replay_model.overlap import SIDE_BY_SIDE, side_by_side_ns
from launchscope.analysis.replay_model.prediction import predict, step_work
from launchscope.analysis.steps.iterations import find_iterations
from launchscope.analysis.timeline.work import Work, gather
from launchscope.parser import read_trace
from launchscope.parser.trace import Trace
from tests.builders import TraceBuilder, trace

MAIN, SIDE = 13, 14
LSTM = Path(__file__).parent / "lstm_train_b32.trace.json.gz"


def work_of(built: Trace) -> Work:
    iterations = find_iterations(built)
    assert iterations is not None
    return gather(built, iterations)


def replay_us(body: Callable[[TraceBuilder], object], node_us: float = 0.0) -> float:
    """What the second of two such steps takes with its streams side by side."""
    built = trace()
    for _ in range(2):
        built.step().work(50)
        body(built)
        built.work(500)
    work = work_of(built.end().trace())
    (found,) = side_by_side_ns(work, np.full(len(work.activities), node_us * 1e3))
    return float(found) / 1e3


def branches(built: TraceBuilder, share: float, main_us: float = 60, side_us: float = 60) -> None:
    """A fork, a kernel on each of two streams one after the other, and their join."""
    built.launch(10, stream=MAIN, share=share).work(30)
    built.record().wait().wait().launch(main_us, stream=MAIN, share=share).work(200)
    built.launch(side_us, stream=SIDE, share=share).work(200)
    built.record().wait().record().wait().launch(10, stream=MAIN, share=share)


def test_small_kernels_of_two_streams_run_at_once_and_each_takes_longer() -> None:
    assert replay_us(lambda b: branches(b, 0.1)) == pytest.approx(10 + 60 * SIDE_BY_SIDE + 10)


def test_kernels_that_fill_the_device_gain_nothing() -> None:
    assert replay_us(lambda b: branches(b, 1.0)) == pytest.approx(10 + 120 + 10)


def test_what_is_left_of_the_longer_branch_runs_alone() -> None:
    found = replay_us(lambda b: branches(b, 0.1, 60, 20))
    assert found == pytest.approx(10 + 20 * SIDE_BY_SIDE + 40 + 10)


def test_a_node_costs_what_it_costs_on_its_own_stream() -> None:
    assert replay_us(lambda b: branches(b, 0.1), 1.0) == pytest.approx(11 + 61 * SIDE_BY_SIDE + 11)


def test_a_copy_beside_a_kernel_slows_neither() -> None:
    def body(built: TraceBuilder) -> None:
        built.launch(10, share=0.9).work(20).record().wait().wait()
        built.launch(60, share=0.9).work(100).memcpy(60, stream=SIDE).work(100)
        built.record().wait().record().wait().launch(10, share=0.9)

    assert replay_us(body) == pytest.approx(10 + 60 + 10)


def test_a_single_wait_gives_the_mean_of_held_and_free() -> None:
    def body(built: TraceBuilder) -> None:
        built.launch(10, share=0.1).work(20).record().wait().wait()
        built.launch(60, stream=MAIN, share=0.1).record().work(100)
        built.wait().launch(60, stream=SIDE, share=0.1).work(100)
        built.record().wait().record().wait().launch(10, share=0.1)

    held, free = 10 + 60 + 60 + 10, 10 + 60 * SIDE_BY_SIDE + 10
    assert replay_us(body) == pytest.approx((held + free) / 2)


def test_what_eager_overlapped_itself_is_not_slowed_down_twice() -> None:
    def body(built: TraceBuilder) -> None:
        built.launch(10, 5, share=1.0).work(30).record().wait().wait()
        begin = built.host
        built.launch(80, 20, stream=MAIN, share=1.0)
        built.launch(80, begin + 20 - built.host, stream=SIDE, share=1.0).work(200)
        built.record().wait().record().wait().launch(10, share=1.0)

    assert replay_us(body) == pytest.approx(10 + 80 + 10)


@pytest.mark.parametrize("api", ["cuStreamWaitEvent", "hipStreamWaitEvent"])
def test_waits_count_by_the_names_of_driver_and_hip_too(api: str) -> None:
    def body(built: TraceBuilder) -> None:
        built.launch(60, share=0.1).work(100).launch(60, stream=SIDE, share=0.1).work(100)
        built.record().wait(api=api).wait(api=api).launch(10, share=0.1)

    assert replay_us(body) == pytest.approx(60 * SIDE_BY_SIDE + 10)


def unknown(built: TraceBuilder) -> None:
    built.launch(60).work(100).record().wait().wait().launch(60, stream=SIDE).work(100)


def unordered(built: TraceBuilder) -> None:
    built.launch(60, share=0.1).work(100).launch(60, stream=SIDE, share=0.1).work(100)


def alone(built: TraceBuilder) -> None:
    built.launch(60, share=0.1).record().wait().wait().work(100).launch(60, share=0.1).work(100)


def graphed(built: TraceBuilder) -> None:
    branches(built, 0.1)
    built.graph([("a", 3), ("b", 4)])


@pytest.mark.parametrize("body", [unknown, unordered, alone, graphed])
def test_a_step_of_unknown_order_or_sizes_is_predicted_from_its_busy_time(
    body: Callable[[TraceBuilder], object],
) -> None:
    assert np.isnan(replay_us(body))
    built = trace()
    for _ in range(2):
        body(built.step())
        built.work(500)
    found = step_work(work_of(built.end().trace()))
    assert found is not None
    assert found.overlap_ms == 0.0


def test_the_prediction_is_never_above_that_of_eagers_own_order() -> None:
    built = trace()
    for _ in range(2):
        branches(built.step().work(50), 1.0)
        built.work(500)
    found = step_work(work_of(built.end().trace()))
    assert found is not None
    assert found.overlap_ms == pytest.approx(0.0, abs=1e-3)
    assert found.busy_ms == pytest.approx(0.14)


def test_an_lstm_through_cudnn_comes_close_to_its_replay() -> None:
    """Two of the steps recorded on an H200 with torch 2.11; their replay took 2.297 ms."""
    found = step_work(work_of(read_trace(LSTM)))
    assert found is not None
    assert found.busy_ms == pytest.approx(2.97, rel=0.02)
    predicted = predict(found)
    assert predicted.ms == pytest.approx(2.297, rel=0.08)
    assert predicted.low_ms < 2.297 < predicted.high_ms
