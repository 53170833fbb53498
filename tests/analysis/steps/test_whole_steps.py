"""Steps that lack a part, in traces that were cut or lost device work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launchscope.analysis import profile_of_trace
from launchscope.analysis.steps.steps import steps_of, whole_steps
from launchscope.errors import InputError
from launchscope.model import Profile
from launchscope.parser import read_trace
from launchscope.parser.launches import find_launches
from launchscope.parser.trace import Trace
from launchscope.rules import advise
from tests.builders import TraceBuilder, loop_trace
from tests.kineto_text import kineto_text
from tests.rules.cases import verdict

FORWARD, BACKWARD = 403, 404


def step(builder: TraceBuilder) -> None:
    """Four launches of one thread, then four of another."""
    for tid in (FORWARD, BACKWARD):
        for _ in range(4):
            builder.op("aten::mul").work(20).launch(kernel_us=4, tid=tid)


def steps(count: int) -> TraceBuilder:
    return loop_trace(count, step, lambda builder: builder.work(50))


def without(count: int, drop: Callable[[dict[str, Any]], bool]) -> Trace:
    built = steps(count).end()
    built.events = [event for event in built.events if not drop(event)]
    return built.trace()


def kernels_from(first: int) -> Callable[[dict[str, Any]], bool]:
    return lambda e: e["cat"] == "kernel" and e["args"]["correlation"] >= first


def used(trace: Trace) -> list[int]:
    joined = find_launches(trace)
    return list(whole_steps(trace, joined, steps_of(trace, joined)).iterations.used)


def notes(found: Profile) -> str:
    return "; ".join(found.notes)


def test_all_steps_of_a_whole_trace_count() -> None:
    assert used(steps(5).trace()) == [1, 2, 3, 4]


def test_steps_that_lost_device_work_are_left_out_and_noted() -> None:
    trace = without(5, kernels_from(1 + 3 * 8 + 5))  # the fourth step lost some, the fifth all
    assert used(trace) == [1, 2]
    found = profile_of_trace(trace, "t")
    assert found.value("launches_per_step") == 8
    assert "no device work for 11 launch calls" in notes(found)
    assert "only 2 of 4 steps could be used" in notes(found)


def test_a_step_in_the_middle_takes_the_one_after_it_along() -> None:
    assert used(without(6, lambda e: e["cat"] == "kernel" and e["args"]["correlation"] == 20)) == [
        1,
        4,
        5,
    ]


def test_where_every_step_lost_work_all_stay_with_a_note() -> None:
    trace = without(5, lambda e: e["cat"] == "kernel" and e["args"]["correlation"] % 8 == 3)
    assert used(trace) == [1, 2, 3, 4]
    assert "no device work for 5 launch calls" in notes(profile_of_trace(trace, "t"))


def test_calls_that_need_no_device_work_are_no_loss() -> None:
    built = loop_trace(4, step, lambda builder: builder.sync())
    assert used(built.trace()) == [1, 2, 3]


def by_thread(event: dict[str, Any]) -> int:
    """As Kineto writes them: operators and ranges, then each thread's calls and device work."""
    if event["cat"] in ("cpu_op", "user_annotation"):
        return 0
    number = event["args"]["correlation"] - 1
    return 1 if number % 8 < 4 else 2


def cut(tmp_path: Path, keep: int) -> Trace:
    """Six steps in Kineto's order, with so many of their calls and kernels."""
    document = steps(6).document()
    events = sorted(document["traceEvents"], key=by_thread)
    ahead = sum(by_thread(event) == 0 for event in events)
    document["traceEvents"] = events[: ahead + keep]
    text = kineto_text(document)
    path = tmp_path / "t.json"
    path.write_text(text[: text.rindex("  ]")])
    return read_trace(path)


def test_in_a_cut_file_only_steps_before_any_threads_end_count(tmp_path: Path) -> None:
    trace = cut(tmp_path, 6 * 8 + 3 * 8 + 2)  # one thread whole, of the other three steps
    assert trace.damage.cut
    assert used(trace) == [1, 2]
    found = advise(profile_of_trace(trace, "t"))
    assert found.value("launches_per_step") == 8
    assert found.value("gpu_busy_ms") == pytest.approx(0.032)


def test_a_cut_file_gives_figures_and_no_verdict(tmp_path: Path) -> None:
    found = advise(profile_of_trace(cut(tmp_path, 6 * 8), "t"))  # one thread is missing
    assert found.value("launches_per_step") == 4
    assert found.value("removable_pct") is None
    assert verdict(found).recommendation == "inconclusive"
    assert "lower limits" in verdict(found).headline
    assert found.value("predicted_replay_ms") is None
    assert not any("agree" in (finding.advice or "") for finding in found.findings)


def test_a_cut_file_without_a_whole_step_is_refused_and_its_span_is_not(tmp_path: Path) -> None:
    trace = cut(tmp_path, 10)
    with pytest.raises(InputError, match="no step of the trace is whole"):
        profile_of_trace(trace, "t")
    found = profile_of_trace(trace, "t", step_from="none")
    assert found.value("launches_per_step") == 5
    assert found.value("removable_pct") is None
