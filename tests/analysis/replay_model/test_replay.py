"""Whether the replay ran eager's work, what verify found, kernels with their lines, blockers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from launchscope.analysis import build_profile
from launchscope.model import (
    BlockerRecord,
    InspectResult,
    OpRecord,
    OptimizerChange,
    ReplayTraceResult,
    SourceLine,
    StepBoundary,
    VerifyResult,
)
from tests.analysis.test_from_recording import MEASURED, whole
from tests.builders import TraceBuilder, known, loop_trace, recording, trace


def replay_trace(tmp_path: Path, kernels: list[tuple[str, float]], eager: int = 0) -> None:
    built = loop_trace(3, lambda b: b.graph(kernels).sync())
    if eager:
        built.step()
        for _ in range(eager):
            built.launch(5)
    built.write(tmp_path / "replay.kineto.json")


def test_a_replay_of_the_same_kernels_is_the_same_work(tmp_path: Path) -> None:
    replay_trace(tmp_path, [("kernel", 5.0)] * 100)
    traced = ReplayTraceResult("replay.kineto.json")
    assert whole(tmp_path, replay=MEASURED, replay_trace=traced).replay.work.same is True


def test_a_replay_of_other_kernels_is_reported_with_their_names(tmp_path: Path) -> None:
    replay_trace(tmp_path, [("kernel", 5.0)] * 90 + [("math", 40.0)] * 7)
    traced = ReplayTraceResult("replay.kineto.json")
    work = whole(tmp_path, replay=MEASURED, replay_trace=traced).replay.work
    assert work.same is False
    assert [(k.name, k.count, k.total_us) for k in work.added] == [("math", 7, 280.0)]
    assert [(k.name, k.count, k.total_us) for k in work.removed] == [("kernel", 10, 50.0)]


def test_copies_that_the_driver_turns_into_kernels_are_no_other_work(tmp_path: Path) -> None:
    replay_trace(tmp_path, [("kernel", 5.0)] * 100 + [("memcpy32_post", 2.0)] * 67)
    traced = ReplayTraceResult("replay.kineto.json")
    assert whole(tmp_path, replay=MEASURED, replay_trace=traced).replay.work.same is True


def test_a_change_under_two_percent_is_the_same_work(tmp_path: Path) -> None:
    replay_trace(tmp_path, [("kernel", 5.0)] * 100 + [("fill", 1.0)] * 3)
    traced = ReplayTraceResult("replay.kineto.json")
    work = whole(tmp_path, replay=MEASURED, replay_trace=traced).replay.work
    assert work.same is True
    assert [k.name for k in work.added] == ["fill"]


def test_other_flags_have_no_eager_step_to_compare_with_but_one_under_the_same(
    tmp_path: Path,
) -> None:
    replay_trace(tmp_path, [("kernel", 5.0)] * 100 + [("multi_tensor_apply_kernel<x>", 50.0)])
    traced = ReplayTraceResult("replay.kineto.json")
    plain = whole(tmp_path, replay=MEASURED, replay_trace=traced)
    changed = replace(MEASURED, changes=(OptimizerChange("AdamW", "capturable", True),))
    assert plain.replay.work.same is False
    assert whole(tmp_path, replay=changed, replay_trace=traced).replay.work.same is None


def test_a_replay_is_compared_with_the_eager_steps_in_its_trace(tmp_path: Path) -> None:
    replay_trace(tmp_path, [("kernel", 5.0)] * 50, eager=50)
    traced = ReplayTraceResult("replay.kineto.json")
    assert whole(tmp_path, replay=MEASURED, replay_trace=traced).replay.work.same is True


def test_the_eager_step_under_the_captures_flags_is_found_by_its_range(tmp_path: Path) -> None:
    built = trace()
    begin = built.host
    for _ in range(4):
        built.launch(5, name="flagged")
    built.optimizer(lambda b: b.launch(9, name="adam"))
    built.span("launchscope.same_flags#0", begin, built.host).sync()
    for _ in range(3):
        built.step().graph([("flagged", 5.0)] * 4).end().sync()
    built.write(tmp_path / "replay.kineto.json")
    traced = ReplayTraceResult("replay.kineto.json")
    step = StepBoundary("period", ("forward", "backward", "optimizer"), ("M",) * 3, "full_step")
    partial = replace(MEASURED, scope="forward_backward")
    work = whole(tmp_path, replay=partial, replay_trace=traced, step=step).replay.work
    assert (work.same, work.added, work.removed) == (True, (), ())
    full = whole(tmp_path, replay=MEASURED, replay_trace=traced, step=step).replay.work
    assert [change.name for change in full.removed] == ["adam"]


def test_speedup_is_against_the_persons_own_eager(tmp_path: Path) -> None:
    changed = replace(
        MEASURED,
        changes=(OptimizerChange("AdamW", "capturable", True),),
        eager_bursts=((5.0, 5.0),),
    )
    assert whole(tmp_path, replay=changed).value("speedup") == pytest.approx(2.5 / 0.5)


def test_speedup_is_the_ratio_of_the_two_reported_times(tmp_path: Path) -> None:
    slower = replace(MEASURED, eager_bursts=((5.0, 5.0),))
    built = whole(tmp_path, replay=slower)
    assert known(built.value("speedup")) == pytest.approx(
        known(built.value("step_ms")) / known(built.value("replay_ms"))
    )


def test_speedup_of_a_part_of_the_step_is_against_that_part(tmp_path: Path) -> None:
    part = replace(MEASURED, scope="forward_backward", eager_bursts=((2.0, 2.0),))
    step = StepBoundary(
        "period", ("forward", "backward", "optimizer"), ("Net", "", "SGD"), "full_step"
    )
    built = whole(tmp_path, replay=part, step=step)
    assert built.value("speedup") == pytest.approx(2.0 / 0.5)


def test_the_profile_has_the_result_of_verify(tmp_path: Path) -> None:
    verified = VerifyResult("verified", update_diff=(1e-9, 3e-9))
    correct = whole(tmp_path, replay=MEASURED, verify=verified).replay.correct
    assert (correct.status, correct.steps, correct.max_update_diff) == ("verified", 2, 3e-9)


def test_kernels_get_their_line_when_the_op_order_matches(tmp_path: Path) -> None:
    def body(b: TraceBuilder) -> None:
        b.op("aten::mm").launch(5, name="gemm").op("aten::add").launch(2, name="add")
        b.op("aten::mm").launch(9, name="gemm").work(30)

    names = ("aten.mm.default", "aten.add.Tensor", "aten.mm.default")
    ops = tuple(OpRecord(name, SourceLine("t.py", n)) for n, name in enumerate(names, 1))
    inspected = InspectResult(1, ("a",), ((),), (3,), (), ops=ops)
    rec = recording(tmp_path, loop_trace(4, body), inspect=inspected)
    rows = {row.name: row for row in build_profile(rec).kernels}
    assert (rows["gemm"].count, rows["gemm"].total_us, rows["gemm"].where) == (
        2,
        14,
        SourceLine("t.py", 3),
    )
    assert rows["add"].where == SourceLine("t.py", 2)
    # Where the two orders differ, what lies between in equal order still gets its line.
    other = replace(
        rec, inspect=replace(inspected, ops=(OpRecord("aten.relu", SourceLine("t.py", 9)), *ops))
    )
    rows = {row.name: row for row in build_profile(other).kernels}
    assert (rows["gemm"].where, rows["add"].where) == (SourceLine("t.py", 3), SourceLine("t.py", 2))
    foreign = replace(
        rec, inspect=replace(inspected, ops=(OpRecord("aten.relu", SourceLine("t.py", 9)),))
    )
    assert {row.where for row in build_profile(foreign).kernels} == {None}


def test_blockers_come_in_the_order_of_their_first_appearance(tmp_path: Path) -> None:
    records = (
        BlockerRecord("aten._local_scalar_dense", "sync", SourceLine("t.py", 1), 1),
        BlockerRecord("aten.index.Tensor", "dynamic_shape", SourceLine("t.py", 2), 4, "x[mask]"),
        BlockerRecord("something.new", "unheard_of", None, 1),
    )
    inspected = InspectResult(1, ("a",), ((),), (3,), records)
    found = build_profile(recording(tmp_path, inspect=inspected)).blockers
    assert [blocker.where for blocker in found] == [
        SourceLine("t.py", 1),
        SourceLine("t.py", 2),
        None,
    ]


def test_a_line_that_blocks_in_several_micro_batches_is_named_once(tmp_path: Path) -> None:
    first = BlockerRecord(
        "aten._local_scalar_dense", "sync", SourceLine("t.py", 1), 1, "loss.item()"
    )
    mask = BlockerRecord("aten.index", "dynamic_shape", SourceLine("t.py", 1), 2, "loss.item()")
    records = (first, mask, replace(first, count=3, part="backward"))
    inspected = InspectResult(1, ("a",), ((),), (3,), records)
    found = build_profile(recording(tmp_path, inspect=inspected)).blockers
    assert [(blocker.op, blocker.count) for blocker in found] == [
        ("aten._local_scalar_dense", 4),
        ("aten.index", 2),
    ]
