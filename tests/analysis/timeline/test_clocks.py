"""Clocks of host and GPU that disagree: what shows it, and what a trace says of them."""

from __future__ import annotations

import pytest

from launchscope.analysis.timeline.clocks import ClockOffset, align_clocks
from launchscope.parser import columns as c
from launchscope.parser.launches import find_launches
from launchscope.parser.trace import Trace, ints
from tests.builders import TraceBuilder, trace

SHIFTS_US = (-50_000, -5_000, -300, 300, 5_000, 50_000)


def loop(sync: str | None = "cudaDeviceSynchronize", stream: int = 7) -> TraceBuilder:
    built = trace()
    for step in range(8):
        built.step()
        for index in range(30):
            built.work(20).launch(kernel_us=4, stream=stream if index % 2 else 7)
        if sync is not None and step == 7:
            built.sync(api=sync)
    return built.end()


def shifted(built: TraceBuilder, us: float, name: str = "") -> TraceBuilder:
    """Later times for the work on the GPU, or for that with a certain name."""
    for event in built.events:
        if event["cat"] in ("kernel", "gpu_memcpy") and name in event["name"]:
            event["ts"] += us
    return built


def found(built: TraceBuilder) -> tuple[Trace, tuple[ClockOffset, ...]]:
    read = built.trace()
    aligned, _, offsets = align_clocks(read, find_launches(read))
    return aligned, offsets


def starts(read: Trace) -> list[int]:
    return [int(start) for start in ints(read.activities, c.START)]


@pytest.mark.parametrize("api", ["cudaDeviceSynchronize", "cudaStreamSynchronize"])
@pytest.mark.parametrize("us", SHIFTS_US)
def test_launches_and_a_synchronization_give_the_offset(us: float, api: str) -> None:
    aligned, (offset,) = found(shifted(loop(api), us))
    assert offset.is_sure
    assert offset.low is not None
    assert offset.low <= us * 1000 <= offset.high
    assert starts(aligned) == pytest.approx(starts(loop(api).trace()), abs=5000)


@pytest.mark.parametrize("us", [-50, 0, 50])
def test_clocks_that_differ_by_a_latency_are_left_as_they_are(us: float) -> None:
    read = shifted(loop(), us).trace()
    joined = find_launches(read)
    assert align_clocks(read, joined) == (read, joined, ())


@pytest.mark.parametrize("us", SHIFTS_US)
def test_without_a_synchronization_the_offset_is_not_sure(us: float) -> None:
    aligned, (offset,) = found(shifted(loop(None), us))
    assert offset.low is None
    assert not offset.is_sure
    assert starts(aligned) == pytest.approx(starts(loop(None).trace()), abs=5000)


def test_a_copy_to_pageable_memory_waits_for_itself() -> None:
    built = loop(None).memcpy(name="Memcpy DtoH (Device -> Pageable)", blocking=True)
    (offset,) = found(shifted(built, 5000))[1]
    assert offset.is_sure


def test_a_call_that_waits_for_one_of_several_streams_shows_nothing() -> None:
    (offset,) = found(shifted(loop("cudaStreamSynchronize", stream=14), 5000))[1]
    assert offset.low is None
    assert found(shifted(loop("cudaDeviceSynchronize", stream=14), 5000))[1][0].is_sure


def test_one_wrong_timestamp_is_no_offset() -> None:
    built = loop()
    built.launch(name="wrong").work(10)
    assert not found(shifted(built, -40_000, "wrong"))[1]


@pytest.mark.parametrize("us", [-9_000, 9_000])
@pytest.mark.parametrize("half", [0, 1])
def test_offsets_that_change_within_the_trace_are_not_corrected(us: float, half: int) -> None:
    built = loop()
    middle = len(built.events) // 2
    for event in (built.events[:middle], built.events[middle:])[half]:
        if event["cat"] == "kernel":
            event["ts"] += us
    aligned, (offset,) = found(built)
    assert not offset.is_possible
    assert not offset.is_sure
    assert starts(aligned) == starts(built.trace())


def test_work_that_always_starts_late_but_not_equally_late_waits_for_something() -> None:
    built = trace()
    for number in range(40):
        built.step().work(9_000).launch(delay_us=1_000 + 100 * (number % 30))
    assert not found(built.end())[1]


def test_a_synchronization_that_returns_with_the_work_shows_that_the_delay_is_one() -> None:
    built = trace()
    for _ in range(40):
        built.step().launch(delay_us=2_000).sync().work(30)
    assert not found(built.end())[1]


def test_the_nodes_of_one_graph_have_one_delay() -> None:
    built = trace()
    for _ in range(3):
        built.step().graph([("k", 4.0)] * 30, delay_us=7_000, gap_us=3).work(20_000)
    assert not found(built.end())[1]
