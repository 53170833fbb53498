"""What a launch is: a host call whose correlation id reaches device work."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from launchscope.parser import columns as c
from launchscope.parser.launches import find_launches, synchronizations
from launchscope.parser.trace import Trace
from tests.builders import TraceBuilder, of_another_process, trace


def kinds(read: Trace) -> list[str]:
    return list(find_launches(read).calls[c.KIND])


def test_any_call_that_reaches_device_work_is_a_launch_whatever_its_name() -> None:
    built = trace().launch(api="cudaLaunchKernel").launch(api="cudaLaunchKernelExC")
    built.launch(api="cuLaunchKernelEx").launch(api="someFutureCall")
    assert kinds(built.trace()) == ["kernel"] * 4


def test_copies_and_sets_are_distinguished_from_kernels() -> None:
    assert kinds(trace().launch().memcpy().memset().trace()) == ["kernel", "memcpy", "memset"]


def test_a_graph_launch_is_one_launch_of_many_kernels() -> None:
    found = find_launches(trace().graph([("a", 2), ("b", 3), ("a", 2)], gap_us=1).trace())
    (row,) = found.calls.frame().to_dict("records")
    assert (row[c.KIND], row[c.KERNELS]) == (c.GRAPH, 3)
    assert row[c.LAST] - row[c.FIRST] == 9000


def test_a_graph_of_one_kernel_is_a_graph_too() -> None:
    assert kinds(trace().graph([("a", 2)]).trace()) == [c.GRAPH]


def test_an_orphan_lowers_the_coverage_and_has_no_launch() -> None:
    found = find_launches(trace().launch().launch().launch().orphan().trace())
    assert found.coverage_pct == 75.0
    assert sorted(found.activities[c.LAUNCH]) == [-1, 0, 1, 2]


def test_without_device_work_the_coverage_is_unknown() -> None:
    found = find_launches(trace().sync().trace())
    assert found.coverage_pct is None
    assert len(found.calls) == 0


def test_a_runtime_call_and_the_driver_call_inside_it_are_one_launch() -> None:
    built = trace().launch(call_us=4)
    outer = next(event for event in built.events if event["cat"] == "cuda_runtime")
    inner = {**outer, "cat": "cuda_driver", "name": "cuLaunchKernel", "ts": outer["ts"] + 1}
    built.events.append({**inner, "dur": 2})
    (name,) = find_launches(built.trace()).calls[c.NAME]
    assert name == "cudaLaunchKernel"


def test_synchronizing_calls_are_counted_and_lookalikes_are_not() -> None:
    built = trace().sync().sync(api="cudaDeviceSynchronize").sync(api="cuCtxSynchronize")
    built.sync(api="cudaStreamIsCapturing").sync(api="cudaEventSynchronize")
    read = built.trace()
    assert synchronizations(read, find_launches(read))[c.COUNTED].sum() == 4


def test_a_pageable_copy_is_a_synchronization_and_a_pinned_one_is_not() -> None:
    built = trace().memcpy(name="Memcpy HtoD (Pageable -> Device)").memcpy()
    read = built.trace()
    found = synchronizations(read, find_launches(read))
    assert list(found[c.COUNTED]) == [True]


def test_a_pageable_copy_with_its_stream_synchronization_counts_once() -> None:
    built = trace().memcpy(name="Memcpy DtoH (Device -> Pageable)", blocking=True).sync().launch()
    read = built.trace()
    found = synchronizations(read, find_launches(read))
    assert list(found[c.COUNTED]) == [False, True]


def test_a_synchronization_of_another_thread_does_not_swallow_the_copy() -> None:
    built = trace().memcpy(name="Memcpy DtoH (Device -> Pageable)", tid=7).sync(tid=8)
    read = built.trace()
    assert synchronizations(read, find_launches(read))[c.COUNTED].sum() == 2


def test_an_id_of_two_calls_of_a_process_joins_neither_and_is_counted() -> None:
    built = trace().launch().launch().launch()
    for event in built.events[2:4]:
        event["args"]["correlation"] = 1
    found = find_launches(built.trace())
    assert len(found.calls) == 1
    assert found.reused == 2


def test_the_id_zero_means_that_it_is_not_known() -> None:
    built = trace().launch()
    for event in built.events:
        event["args"]["correlation"] = 0
    assert len(find_launches(built.trace()).calls) == 0


# ------------------------------------------------- launched before the recording, or lost


def earlier(built: TraceBuilder) -> int:
    return int(find_launches(built.trace()).activities[c.EARLIER].sum())


def launching(built: TraceBuilder, count: int, kernel_us: float = 3) -> TraceBuilder:
    for _ in range(count):
        built.op("aten::mul").work(20).launch(kernel_us=kernel_us)
    return built


@pytest.mark.parametrize("kernel_us", [3, 60], ids=["the GPU waits", "the GPU is busy"])
def test_work_whose_calls_were_lost_was_not_launched_before_the_recording(kernel_us: float) -> None:
    built = launching(trace(), 60, kernel_us)
    built.events = [e for e in built.events if e["cat"] != "cuda_runtime" or e["ts"] > 1_000_700]
    found = find_launches(built.trace())
    assert not found.activities[c.EARLIER].any()
    assert found.coverage_pct == pytest.approx(100 * len(found.calls) / 60)
    assert len(found.calls) < 35


def loading(built: TraceBuilder) -> None:
    """A step that begins with what launches nothing, while the GPU works off its queue."""
    for _ in range(400):
        built.op("aten::stack").work(20)


@pytest.mark.parametrize("begin", [lambda built: None, loading], ids=["at once", "after loading"])
@pytest.mark.parametrize("gap_us", [0, 500], ids=["one after the other", "waiting for ranks"])
def test_queued_work_was_launched_before_the_recording(
    begin: Callable[[TraceBuilder], None], gap_us: float
) -> None:
    built = trace()
    queued = []
    for number in range(100):
        built.host = 1_000_000 + number * (60 + gap_us * (number == 50))
        queued.append(built.orphan(us=60))
    built.host = 1_000_100
    begin(built.step())
    launching(built, 40)
    assert earlier(built) == 100
    # Ids of another process on another GPU tell nothing.
    built.events += of_another_process(launching(trace(), 9), 9, 1)
    for event in built.events[:-27]:
        if "correlation" in event["args"]:
            event["args"]["correlation"] += 9
    assert earlier(built) == 100
