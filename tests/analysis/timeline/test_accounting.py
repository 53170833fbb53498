"""Counts of launches and synchronizations, launch times and back-pressure."""

from __future__ import annotations

import pytest

from launchscope.analysis.metrics import UNITS
from launchscope.analysis.profile_builder import ProfileBuilder
from launchscope.analysis.timeline.accounting import account, blocked_ns
from launchscope.model import Metric
from launchscope.parser import columns as c
from launchscope.parser.launches import find_launches
from tests.builders import TraceBuilder, loop_trace, trace, work_of


def mixed(b: TraceBuilder) -> None:
    b.launch().launch(api="cuLaunchKernel").memset().memcpy().graph([("g", 2), ("g", 2)]).sync()


def test_each_kind_of_launch_is_counted_on_its_own() -> None:
    found = account(work_of(loop_trace(4, mixed)))
    assert list(found.counts["launches_per_step"]) == [2, 2, 2]
    assert list(found.counts["memsets_per_step"]) == [1, 1, 1]
    assert list(found.counts["memcpys_per_step"]) == [1, 1, 1]
    assert list(found.counts["graph_launches_per_step"]) == [1, 1, 1]
    assert list(found.counts["kernels_per_step"]) == [4, 4, 4]


def test_synchronizations_inside_and_between_steps_are_counted_separately() -> None:
    built = loop_trace(4, mixed, lambda b: b.sync(api="cudaDeviceSynchronize").sync())
    found = account(work_of(built))
    assert list(found.counts["syncs_per_step"]) == [1, 1, 1]
    assert list(found.syncs_between) == [2, 2, 2]


def test_a_count_is_exact_only_when_all_samples_agree() -> None:
    builder = ProfileBuilder()
    builder.count("launches_per_step", [5, 5])
    builder.count("memcpys_per_step", [5, 6, 5])
    builder.count("syncs_per_step", [])
    assert builder.metrics["launches_per_step"] == Metric(5, "1", True, (5.0, 5.0))
    assert builder.metrics["memcpys_per_step"] == Metric(5, "1", False, (5.0, 6.0, 5.0))
    assert builder.metrics["syncs_per_step"] == Metric(None, "1")


def test_the_profilers_cost_is_taken_off_each_call() -> None:
    work = work_of(loop_trace(4, lambda b: b.launch(call_us=4).launch(call_us=6).work(20)))
    found = account(work, 1.5)
    assert list(found.times["launch_api_raw_ms"]) == pytest.approx([0.010] * 3)
    assert list(found.times["launch_api_ms"]) == pytest.approx([0.007] * 3)


def test_a_calibration_beyond_belief_takes_off_half_a_call_at_most() -> None:
    found = account(work_of(loop_trace(4, lambda b: b.launch(call_us=4).work(20))), 30.0)
    assert list(found.times["launch_api_ms"]) == pytest.approx([0.002] * 3)


def test_a_long_call_on_a_full_queue_is_back_pressure() -> None:
    built = trace()
    for _ in range(700):
        built.launch(100, call_us=4)
    built.launch(100, call_us=90)
    excess = blocked_ns(find_launches(built.trace()).calls)
    assert excess[-1] == 86_000
    assert excess[:-1].sum() == 0


def test_a_long_call_on_an_empty_queue_is_not() -> None:
    built = trace()
    for _ in range(700):
        built.launch(1, call_us=4).work(10)
    calls = find_launches(built.launch(1, call_us=90).trace()).calls
    assert len(calls) == 701
    assert blocked_ns(calls).sum() == 0
    assert calls[c.DUR].max() == 90_000


def test_queue_delay_runs_from_the_end_of_the_call() -> None:
    found = account(work_of(loop_trace(4, lambda b: b.launch(2, 9, call_us=4).work(30))))
    assert list(found.times["queue_delay_us"]) == pytest.approx([5.0] * 3)
    assert list(found.times["tklqt_ms"]) == pytest.approx([0.009] * 3)


def test_the_builder_holds_every_key_and_no_other() -> None:
    builder = ProfileBuilder()
    builder.set("step_ms", 2.0)
    assert list(builder.metrics) == list(UNITS)
    assert builder.metrics["step_ms"] == Metric(2.0, "ms")
    assert builder.metrics["iteration_ms"].value is None
    with pytest.raises(KeyError):
        builder.set("steps_ms", 1.0)
