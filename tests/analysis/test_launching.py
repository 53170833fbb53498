"""What made the launches: known answers, and sums that equal the metrics."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from statistics import mean

import pytest

from launchscope.analysis import build_profile, profile_of_trace
from launchscope.model import InspectResult, OpRecord, OverheadRow, Profile, SourceLine
from launchscope.parser import read_recording, read_trace
from tests.builders import TraceBuilder, known, loop_trace, recording, timing

RECORDINGS = sorted((Path(__file__).parents[2] / "sample_workloads/recordings").iterdir())
TRACES = [file for folder in RECORDINGS for file in sorted(folder.glob("*.kineto.json.gz"))]
WORKER = 404  # a thread of autograd
TABLES = ("overhead_by_line", "overhead_by_module", "launches_by_operator")


@cache
def of_recording(folder: Path) -> Profile:
    return build_profile(read_recording(folder))


def of_trace(built: TraceBuilder) -> Profile:
    return profile_of_trace(built.trace(), "trace.json")


def rows(found: tuple[OverheadRow, ...] | None) -> dict[str, float]:
    """Launches by name, or by part."""
    assert found is not None
    return {row.name or row.part: row.launches for row in found}


# -------------------------------------------------------- sums, over all recorded traces


def assert_sums(profile: Profile) -> None:
    launches = profile.metrics["launches_per_step"].samples
    for table in TABLES:
        found = getattr(profile, table)
        if found is None:
            continue
        inside = [row.launches for row in found if row.part != "between_steps"]
        assert math.fsum(inside) == pytest.approx(mean(launches), rel=1e-12)
        overhead = profile.value("launch_overhead_ms")
        if overhead is None:
            assert {row.idle_ms for row in found} == {None}
        else:
            idle = [row.idle_ms for row in found]
            assert math.fsum(map(known, idle)) == pytest.approx(overhead, rel=1e-12, abs=1e-6)


@pytest.mark.parametrize("folder", RECORDINGS, ids=lambda folder: folder.name)
def test_the_parts_of_a_recording_sum_to_its_metrics(folder: Path) -> None:
    assert_sums(of_recording(folder))


@pytest.mark.parametrize("file", TRACES, ids=lambda file: f"{file.parent.name}-{file.name[:6]}")
def test_the_parts_of_a_trace_sum_to_its_metrics(file: Path) -> None:
    assert_sums(profile_of_trace(read_trace(file), file.name))


@pytest.mark.parametrize("folder", RECORDINGS, ids=lambda folder: folder.name)
def test_nearly_every_launch_of_a_recorded_step_has_its_line(folder: Path) -> None:
    found = rows(of_recording(folder).overhead_by_line)
    assert found.pop("unknown", 0) <= 0.02 * sum(found.values())


def test_a_backward_counts_for_the_lines_of_the_forward() -> None:
    found = rows(of_recording(RECORDINGS[0].parent / "small_gpt").overhead_by_line)
    # Line 68 is loss.backward(): what belongs to no line of the forward stays there.
    assert found["sample_workloads/small_gpt.py:68"] < 20
    assert found["sample_workloads/small_gpt.py:30"] > 120


# ------------------------------------------------------------------------ known answers


FORWARD, BACKWARD = {"Sequence number": 7, "Fwd thread id": 0}, {
    "Sequence number": 7, "Fwd thread id": 1,
}  # fmt: skip


def step_with_backward(b: TraceBuilder) -> None:
    """A module and its loss on the main thread, and the backward on one of its own."""

    def forward(b: TraceBuilder) -> None:
        b.inside("aten::addmm", lambda b: b.launch(), arguments=FORWARD)

    def linear(b: TraceBuilder) -> None:
        b.inside("train.py(9): forward", forward, category="python_function")

    def net(b: TraceBuilder) -> None:
        b.inside("nn.Module: Linear_0", linear, category="python_function").work(3)

    def node(b: TraceBuilder) -> None:
        b.launch(tid=WORKER).launch(tid=WORKER)
        # What a checkpoint runs again is no backward.
        b.inside("aten::relu", lambda b: b.launch(tid=WORKER), tid=WORKER,
                 arguments={"Sequence number": 99, "Fwd thread id": 0})  # fmt: skip

    b.inside("nn.Module: Net_0", net, category="python_function").work(5)
    b.inside("autograd::engine::evaluate_function: AddmmBackward0", node, tid=WORKER,
             arguments=BACKWARD)  # fmt: skip
    b.launch().work(5)


def test_a_trace_with_modules_counts_the_backward_for_the_module_of_its_forward() -> None:
    found = of_trace(loop_trace(4, step_with_backward))
    assert rows(found.overhead_by_module) == {"Linear_0": 3, "unknown": 2}
    assert found.overhead_by_module is not None
    assert found.overhead_by_module[0].stack == ("Net_0", "Linear_0")
    assert found.overhead_by_line is None
    assert rows(found.launches_by_operator) == {"aten::addmm": 1, "AddmmBackward0": 3, "unknown": 1}
    assert_sums(found)


def test_ranges_stand_in_for_modules_but_steps_and_optimizers_do_not() -> None:
    def body(b: TraceBuilder) -> None:
        begin = b.host
        b.launch().work(9).span("encode", begin, b.host).launch()
        b.optimizer(lambda b: b.launch())

    assert rows(of_trace(loop_trace(4, body)).overhead_by_module) == {"encode": 1, "unknown": 2}
    plain = of_trace(loop_trace(4, lambda b: b.launch().optimizer(lambda b: b.launch())))
    assert plain.overhead_by_module is None


def test_of_very_many_names_those_that_cost_most_are_kept_and_the_sums_hold() -> None:
    names = iter(range(10_000))

    def body(b: TraceBuilder) -> None:
        for _ in range(400):
            b.inside(f"request {next(names)}", lambda b: b.launch().work(9))

    found = of_trace(loop_trace(5, body))
    counted = rows(found.launches_by_operator)
    assert len(counted) == 1001
    assert counted["others"] == 400 - 1000 / 4
    assert_sums(found)


def test_a_launch_between_two_operators_of_one_line_is_of_that_line(tmp_path: Path) -> None:
    def body(b: TraceBuilder) -> None:
        for name in ("aten::mul", "fused", "aten::add", "other", "aten::sub"):
            b.op(name).launch().work(20)

    first, second = SourceLine("train.py", 4), SourceLine("train.py", 5)
    lines = {"mul": first, "add": first, "sub": second}
    ops = tuple(OpRecord(f"aten.{name}.Tensor", line) for name, line in lines.items())
    inspected = InspectResult(1, ("a",), ((),), (3,), (), ops)
    made = recording(tmp_path, loop_trace(5, body), timing=timing(), inspect=inspected)
    found = build_profile(made)
    assert rows(found.overhead_by_line) == {"train.py:4": 3, "train.py:5": 1, "unknown": 1}
    assert_sums(found)


def test_a_recording_knows_modules_from_its_inspection(tmp_path: Path) -> None:
    def body(b: TraceBuilder) -> None:
        b.op("aten::addmm").launch().work(9).op("aten::relu").launch().op("aten::view").work(9)
        b.inside("autograd::engine::evaluate_function: ViewBackward0",
                 lambda b: b.launch(tid=WORKER), tid=WORKER, arguments=BACKWARD)  # fmt: skip
        b.op("aten::_foreach_mul_").launch().work(9)

    built = loop_trace(5, body)
    for event in built.events:
        if event["name"] == "aten::view":  # between two operators of the module
            event["args"] |= FORWARD
    line = SourceLine("train.py", 4)
    ops = (
        OpRecord("aten.addmm.default", line, ("Net", "layers.0")),
        OpRecord("aten.relu.default", line, ("Net", "layers.0", "act")),
        OpRecord("aten._foreach_mul_.Scalar", line),
    )
    inspected = InspectResult(1, ("a",), ((),), (3,), (), ops)
    made = recording(tmp_path, built, timing=timing(), inspect=inspected)
    found = build_profile(made)
    assert rows(found.overhead_by_module) == {"layers.0": 1, "layers.0.act": 1, "unknown": 2}
    assert rows(found.overhead_by_line) == {"train.py:4": 4}
    assert found.overhead_by_module is not None
    assert ("Net", "layers.0", "act") in {row.stack for row in found.overhead_by_module}
    assert_sums(found)
