"""Busy and idle time with known answers, and idle attribution."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from launchscope.analysis.steps.iterations import find_iterations
from launchscope.analysis.timeline.timeline import CAUSES, Idle, Timeline, build_timeline
from tests.builders import MAIN, TraceBuilder, loop_trace, trace, work_of


def timeline_of(built: TraceBuilder) -> Timeline:
    return build_timeline(work_of(built))


def us(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[float]:
    return [round(float(value) * 1e3, 3) for value in values]


def total(parts: Idle) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.asarray(sum(parts[cause] for cause in CAUSES))


def test_busy_is_the_union_of_what_the_step_launched() -> None:
    # Two streams overlap: 10 us on one, 10 us on the other beginning 4 us later.
    built = loop_trace(3, lambda b: b.launch(10).launch(10, stream=14).work(30))
    found = timeline_of(built)
    assert us(found.step_busy) == [14, 14]


def test_work_that_runs_after_the_step_still_belongs_to_it() -> None:
    built = loop_trace(3, lambda b: b.launch(50).launch(50), lambda b: b.launch(7).work(200))
    found = timeline_of(built)
    assert us(found.step_busy) == [100, 100]
    # An iteration begins after the step before: the launch between belongs to it.
    assert us(found.iteration_busy) == [107, 107]


def test_a_gap_before_a_queued_kernel_is_a_dispatch_gap() -> None:
    built = trace()
    for _ in range(3):
        built.step().launch(100).launch(10).work(150)
    # Kernels run back to back in the builder: pull the second one apart by 2 us.
    seconds = [e for e in built.events if e["cat"] == "kernel" and e["dur"] == 10]
    for event in seconds:
        event["ts"] += 2
    found = timeline_of(built)
    assert us(found.iteration_idle["dispatch"]) == [2, 2]


def test_work_that_starts_long_after_its_call_returned_is_a_stall_and_no_launch_overhead() -> None:
    # Queued while the GPU was busy, and 700 us after a late call of 4 us had returned.
    def body(b: TraceBuilder) -> None:
        b.launch(50).launch(3, delay_us=500).work(600).launch(3, delay_us=704).work(900)

    parts = timeline_of(loop_trace(4, body)).iteration_idle
    assert us(parts["stalled"]) == pytest.approx([1149, 1149, 1149], abs=5)
    assert us(parts["dispatch"]) == us(parts["stalled"])
    assert us(parts["launch_call"]) == [9, 9, 9]  # before the first kernel, and the late call
    np.testing.assert_allclose(total(parts), parts["idle"], atol=1e-9)


def test_a_gap_too_long_for_a_launch_is_a_pause_where_that_is_asked_for() -> None:
    built = loop_trace(4, lambda b: b.work(30).launch().work(12_000).launch().work(30))
    work = work_of(built)
    parts, plain = (
        build_timeline(replace(work, alone=True)).iteration_idle,
        build_timeline(work).iteration_idle,
    )
    assert us(parts["paused"]) == pytest.approx([12_002, 12_002, 12_002], abs=5)
    assert us(parts["unsure"]) == [0, 0, 0]
    assert parts["pauses"].tolist() == [1, 1, 1]
    assert parts["gaps"].tolist() == [2, 2, 2]
    np.testing.assert_allclose(total(parts), parts["idle"], atol=1e-9)
    assert us(plain["paused"]) == [0, 0, 0]
    np.testing.assert_allclose(
        plain["framework"] + plain["launch_call"],
        parts["framework"] + parts["launch_call"] + parts["paused"],
    )


@pytest.mark.parametrize(("waited_us", "stays"), [(90, 0), (150, 0.25), (200, 0.5), (500, 1)])
def test_how_much_of_a_wait_behind_the_launch_is_a_stall_grows_with_it(
    waited_us: float, stays: float
) -> None:
    built = loop_trace(4, lambda b: b.work(800).launch(3, delay_us=4 + waited_us))
    parts = timeline_of(built).iteration_idle
    assert us(parts["stalled"]) == pytest.approx([stays * waited_us] * 3, abs=0.1)
    assert us(parts["unsure"]) == pytest.approx([waited_us * min(2 * stays, 2 - 2 * stays)] * 3)


@pytest.mark.parametrize(
    "api",
    ["cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaMallocAsync", "cuMemCreate",
     "cuModuleLoadData", "cuLibraryLoadData", "hipMalloc", "hipModuleLoad", "cudaGraphInstantiate"],
)  # fmt: skip
def test_allocation_and_loading_in_a_gap_are_set_up_and_not_a_late_host(api: str) -> None:
    built = loop_trace(4, lambda b: b.launch(delay_us=4).sync(50, api=api).work(10).launch())
    plain = loop_trace(4, lambda b: b.launch(delay_us=4).sync(50, api="cuGetIt").work(10).launch())
    parts, other = timeline_of(built).iteration_idle, timeline_of(plain).iteration_idle
    assert us(parts["setup"]) == pytest.approx([47] * 3)  # its kernel of 3 us still runs
    assert us(other["setup"]) == [0, 0, 0]
    np.testing.assert_allclose(
        parts["setup"] + parts["framework"] + parts["launch_call"],
        other["framework"] + other["launch_call"],
    )
    np.testing.assert_allclose(total(parts), parts["idle"], atol=1e-9)


def test_a_module_that_a_launch_call_loads_is_set_up() -> None:
    def lazily(b: TraceBuilder) -> None:
        b.work(20).launch(delay_us=1004, call_us=1004)
        b._call("cuLibraryLoadData", b.host - 1002, 1000, MAIN, b._next())

    parts = timeline_of(loop_trace(4, lazily)).iteration_idle
    assert us(parts["setup"]) == [1000] * 3
    assert all(call < 5e-3 for call in parts["launch_call"])


def test_a_single_step_lasts_from_the_begin_of_its_mark_to_the_end() -> None:
    built = trace().step().work(40).launch(10, 5).work(20).launch(10, 5).work(71).end()
    found = timeline_of(built)
    parts = found.iteration_idle
    # 45 until the first kernel, 14 between the kernels, 65 behind the last, of 20 + 45 + 14 + 60.
    assert us(found.traced_iteration) == [139]
    assert us(parts["idle"]) == [119]
    assert us(parts["unattributed"]) == [60]
    np.testing.assert_allclose(total(parts), parts["idle"], atol=1e-9)
    assert us(found.step_idle["unattributed"]) == [0]


def test_a_single_step_begins_when_the_gpu_is_through_with_what_came_before() -> None:
    built = trace().launch(500, name="before").step().launch(10).work(20).launch(10).end()
    found = timeline_of(built)
    assert us(found.traced_iteration) == [20]
    assert us(found.iteration_idle["idle"]) == [0]


def test_idle_in_the_data_loader_is_data_wait() -> None:
    built = loop_trace(3, lambda b: b.launch(5), lambda b: b.data(500))
    parts = timeline_of(built).iteration_idle
    assert us(parts["data"]) == pytest.approx([494, 494], abs=6)
    assert us(timeline_of(built).step_idle["data"]) == [0, 0]


def test_idle_after_a_wait_is_charged_to_the_synchronization_up_to_the_wait() -> None:
    # The host waits about 96 us for a kernel of 100 us, then takes 30 us to launch again.
    built = loop_trace(3, lambda b: b.launch(100).sync(wake_us=5).work(30))
    parts = timeline_of(built).iteration_idle
    assert us(parts["framework"] + parts["launch_call"]) == [0, 0]
    assert us(parts["sync"]) == us(parts["idle"])


def test_a_synchronization_that_waited_for_nothing_is_not_blamed() -> None:
    built = loop_trace(3, lambda b: b.launch(3).work(50).sync(call_us=2).work(30))
    parts = timeline_of(built).iteration_idle
    assert us(parts["sync"]) == [2, 2]
    assert us(parts["framework"]) == pytest.approx([76, 76], abs=3)


def test_idle_splits_into_launch_calls_and_framework() -> None:
    # 20 us of Python, then a call of 4 us whose kernel starts 5 us after the call began.
    built = loop_trace(3, lambda b: b.work(20).launch(3, 5, call_us=4))
    parts = timeline_of(built).iteration_idle
    # The kernel ends 4 us after its call returned, so 16 us of Python are exposed.
    assert us(parts["framework"]) == [16, 16]
    assert us(parts["launch_call"]) == [5, 5]


def test_a_gap_that_an_orphan_ends_is_unattributed() -> None:
    built = trace()
    for _ in range(3):
        built.step().launch(3).work(20).orphan(3).work(20).launch(3).work(5)
    found = timeline_of(built)
    assert all(value > 0 for value in found.iteration_idle["unattributed"])
    np.testing.assert_allclose(total(found.iteration_idle), found.iteration_idle["idle"])


def test_nothing_of_the_calibration_is_measured() -> None:
    with_it = loop_trace(3, lambda b: b.launch(3).work(10)).calibration().launch(500)
    without = loop_trace(3, lambda b: b.launch(3).work(10))
    assert us(timeline_of(with_it).iteration_busy) == us(timeline_of(without).iteration_busy)


def test_the_first_step_and_other_kinds_are_left_out() -> None:
    read = loop_trace(6, lambda b: b.launch()).trace()
    plain, kinds = find_iterations(read, 2), find_iterations(read, 1, (0, 1, 0, 1, 0, 1), 1)
    assert plain is not None
    assert kinds is not None
    assert list(plain.used) == [2, 3, 4, 5]
    assert list(kinds.used) == [1, 3, 5]


def test_a_foreign_trace_is_cut_at_profiler_steps_or_taken_whole() -> None:
    built = trace()
    for index in range(3):
        begin = built.host
        built.launch().work(10).span(f"ProfilerStep#{index}", begin, built.host)
    marked = find_iterations(built.trace())
    bare = find_iterations(trace().launch().work(5).launch().trace())
    assert marked is not None
    assert bare is not None
    assert len(marked) == 3
    assert list(bare.used) == [0]
    assert find_iterations(trace().trace()) is None


def test_of_two_devices_the_busier_one_is_measured() -> None:
    built = loop_trace(3, lambda b: b.launch(50).launch(5, name="small").work(80))
    for event in built.events:
        if event["name"] == "small":
            event["args"]["device"] = 1
    work = work_of(built)
    assert work.devices == 2
    assert us(build_timeline(work).step_busy) == [50, 50]
