"""What a step is in somebody else's trace: marks, ranges, a period, or the whole span."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from launchscope.analysis.steps.period import find_period
from launchscope.analysis.steps.steps import Steps, steps_of
from launchscope.errors import InputError
from launchscope.parser.launches import find_launches
from tests.builders import PID, TraceBuilder, loop_trace, of_another_process, trace


def steps(built: TraceBuilder, **how: str) -> Steps:
    read = built.trace()
    return steps_of(read, find_launches(read), **how)


def unmarked(count: int) -> TraceBuilder:
    built = trace()
    for _ in range(count):
        for name in ("gemm", "relu", "gemm", "relu", "sgd"):
            built.launch(name=name)
        built.work(200)
    return built


def marked(prefix: str, count: int = 4) -> TraceBuilder:
    built = trace()
    for index in range(count):
        begin = built.host
        built.launch().launch().work(50)
        built.span(f"{prefix}{index}", begin, built.host)
    return built


def test_the_profilers_marks_are_steps() -> None:
    found = steps(marked("ProfilerStep#"))
    assert (found.boundary.boundary, found.boundary.names) == ("marker", ("ProfilerStep",))
    assert list(found.iterations.used) == [1, 2, 3]


@pytest.mark.parametrize(("names", "step"), [
    (["execute_context_1(888_788544)_generation_0(0)"], "execute_context"),
    (["execute_32_context_0_generation_32", "execute_9_context_9_generation_0"], "execute"),
    (["step[DECODE bs=32]", "step[EXTEND bs=1 toks=700]"], "step"),
    (["[Executor] _forward_step 7: 0 ctx reqs, 8 gen reqs"], "[Executor] _forward_step"),
    (["[pl][profile]run_training_batch"] * 3, "[pl][profile]run_training_batch"),
    (["Iteration 3", "Iteration 4", "Iteration 5"], "Iteration"),
    (["iteration_#10", "iteration_#11", "iteration_#12"], "iteration"),
    (["train_step"] * 3, "train_step"),
])  # fmt: skip
def test_the_ranges_of_usual_frameworks_are_steps(names: list[str], step: str) -> None:
    built = unmarked(4)  # a period, which counts for less
    for name in names:
        begin = built.host
        for index in range(30):
            built.launch(name=f"k{index}")
        built.work(50).span(name, begin, built.host).launch()
    found = steps(built)
    assert (found.boundary.boundary, found.boundary.names) == ("marker", (step,))
    assert len(found.iterations) == len(names)


@pytest.mark.parametrize("name", ["Iteration", "step_by_step", "capture_32_FULL", "executor"])
def test_one_range_of_a_usual_word_and_other_ranges_are_no_steps(name: str) -> None:
    built = unmarked(6)
    first, last = built.events[0]["ts"], built.host
    assert steps(built.span(name, first, last)).boundary.boundary == "launches"


def test_ranges_that_launch_little_of_the_device_work_are_no_steps() -> None:
    built = unmarked(6)
    for index in range(4):
        begin = built.host
        built.launch(kernel_us=1, name="small").span(f"execute_{index}_context", begin, built.host)
    assert steps(built).boundary.boundary == "launches"


@pytest.mark.parametrize("is_marked", [True, False])
def test_steps_are_those_of_the_process_with_most_of_the_device_time(is_marked: bool) -> None:
    def busy(us: float) -> Callable[[TraceBuilder], object]:
        return lambda built: [built.work(9).launch(kernel_us=us, name=name) for name in "abcdef"]

    small, large = loop_trace(30, busy(1)), loop_trace(5, busy(50))
    for event in small.events:
        if "correlation" in event["args"]:
            event["args"]["correlation"] += 1000
    large.end().events += of_another_process(small, PID - 1, 1)
    if not is_marked:
        large.events = [e for e in large.events if e["cat"] != "user_annotation"]
    found = steps(large)
    assert found.iterations.pid == PID
    assert len(found.iterations) == 5


def test_a_last_step_without_launches_is_left_out_and_noted() -> None:
    built = marked("ProfilerStep#")
    built.work(10).span("ProfilerStep#4", built.host - 5, built.host)
    found = steps(built)
    assert list(found.iterations.used) == [1, 2, 3]
    assert found.notes == ("the last step launched nothing and does not count",)
    assert steps(marked("ProfilerStep#")).notes == ()


def test_a_range_by_name_is_a_step() -> None:
    assert len(steps(marked("train "), step_range="train ").iterations) == 4
    assert steps(marked("x", 1).span("x", 0, 1), step_range="x").boundary.names == ("x",)


def test_a_range_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(InputError, match="no range named epoch") as caught:
        steps(marked("train#"), step_range="epoch")
    assert "train" in str(caught.value.hint)


def test_nested_ranges_of_one_name_count_once() -> None:
    built = trace()
    for _ in range(3):
        begin = built.host
        built.launch().span("step", begin + 1, built.host).work(10)
        built.span("step", begin, built.host)
    assert len(steps(built, step_range="step").iterations) == 3


def test_without_marks_the_period_of_the_launches_is_the_step() -> None:
    found = steps(unmarked(6))
    assert (found.boundary.boundary, found.boundary.launches) == ("launches", 5)
    assert len(found.iterations) == 6
    assert any(
        "5 launches, copies and memsets included, repeated 6 times" in note for note in found.notes
    )


def test_the_whole_span_and_marks_can_be_asked_for() -> None:
    assert steps(marked("ProfilerStep#"), step_from="none").boundary.boundary == "none"
    with pytest.raises(InputError, match="no step marks"):
        steps(unmarked(6), step_from="marker")


def test_optimizer_steps_end_steps() -> None:
    built = trace()
    for _ in range(4):
        built.launch().optimizer(lambda inner: inner.launch()).work(30)
    found = steps(built, step_from="optimizer")
    assert (found.boundary.boundary, found.boundary.names) == ("optimizer", ("SGD.step",))
    assert len(found.iterations) == 4
    assert found.iterations.pid == PID
    with pytest.raises(InputError, match="no optimizer steps"):
        steps(unmarked(3), step_from="optimizer")


# --------------------------------------------------------------------------- periods


def period(sequence: list[int]) -> tuple[int, list[int]]:
    one, none = np.ones(len(sequence), np.int64), np.zeros(len(sequence), np.bool_)
    found = find_period(np.asarray(sequence, np.int64), one, one, none)
    return (0, []) if found is None else (found.length, found.starts.tolist())


STEP = [1, 2, 3, 2, 3, 4, 5]


def test_a_period_begins_behind_the_optimizer_where_that_is_known() -> None:
    codes, gap = np.asarray(STEP * 8), np.ones(7 * 8, np.int64)
    gap[4::7] = 50  # the longest wait is within the step
    behind = np.zeros(len(codes), np.bool_)
    behind[7::7] = True
    found = find_period(codes, gap, np.ones(len(codes), np.int64), behind)
    assert found is not None
    assert set(found.starts % 7) == {0}
    behind[3::7] = True  # two optimizers: the wait decides
    found = find_period(codes, gap, np.ones(len(codes), np.int64), behind)
    assert found is not None
    assert set(found.starts % 7) == {4}


@pytest.mark.parametrize("optimizers", [12, 3])
def test_layers_between_optimizer_steps_are_no_steps(optimizers: int) -> None:
    """Sequences differ in length, and with them the launches of the steps."""
    built, lengths = trace(), random.Random(2)
    for _ in range(optimizers):
        for _ in range(lengths.randint(6, 20)):
            for name in "abcde":
                built.work(20).launch(name=name)
        built.optimizer(lambda b: b.launch(name="o").launch(name="p"))
    found = steps(built)
    if optimizers == 3:  # too few
        assert found.boundary.boundary == "launches"
        return
    assert found.boundary.boundary == "optimizer"
    assert len(found.iterations) == optimizers


def test_the_smallest_period_is_found_not_a_multiple() -> None:
    assert period(STEP * 8)[0] == 7


def test_repeated_layers_are_no_steps() -> None:
    step = [9] + [1, 2, 3] * 12 + [7, 8]
    assert period(step * 5)[0] == len(step)


def test_a_prologue_and_an_epilogue_do_not_hide_the_period() -> None:
    length, starts = period([50, 51, 52, 53] * 2 + STEP * 10 + [60, 61, 62, 63, 64])
    assert length == 7
    assert len(starts) >= 9


def test_a_step_that_differs_is_left_out_and_breaks_the_chain() -> None:
    sequence = STEP * 5 + [1, 2, 99, 98, 97, 5] + STEP * 5
    each = np.ones(len(sequence), np.int64)
    found = find_period(np.asarray(sequence), each, each, np.zeros(len(sequence), np.bool_))
    assert found is not None
    assert found.length == 7
    assert int((~found.follows).sum()) == 2  # the first of all, and the first after the break


def test_marks_of_a_process_or_thread_that_launches_nothing_are_no_steps() -> None:
    built = loop_trace(4, lambda b: b.launch().work(50))
    for index in range(9):
        built.span(f"launchscope.step#{index}", 1_000_000 + index, 1_000_001 + index, tid=5)
    read = built.trace()
    assert len(steps_of(read, find_launches(read)).iterations) == 4
    for event in built.events[-9:]:
        event["pid"] = 7
    read = built.trace()
    assert len(steps_of(read, find_launches(read)).iterations) == 4
