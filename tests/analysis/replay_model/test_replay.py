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
    ReplayResult,
    ReplayTraceResult,
    SourceLine,
    StepBoundary,
    VerifyResult,
)
from tests.analysis.test_from_recording import MEASURED, whole
from tests.builders import TraceBuilder, known, loop_trace, recording, trace

TRACED = ReplayTraceResult("replay.kineto.json")
FLAGS = replace(MEASURED, changes=(OptimizerChange("AdamW", "capturable", True),))
USUAL = ("kernel", 5.0)  # of which eager runs 100
STEPPED = ("multi_tensor_apply_kernel<x>", 50.0)


@pytest.mark.parametrize(
    ("kernels", "eager", "replay", "same", "added"),
    [
        ([USUAL] * 100, 0, MEASURED, True, []),
        ([USUAL] * 90 + [("math", 40.0)] * 7, 0, MEASURED, False, [("math", 7, 280.0)]),
        ([USUAL] * 100 + [("memcpy32_post", 2.0)] * 67, 0, MEASURED, True, []),
        ([USUAL] * 100 + [("fill", 1.0)] * 3, 0, MEASURED, True, [("fill", 3, 3.0)]),
        ([USUAL] * 100 + [STEPPED], 0, MEASURED, False, [(STEPPED[0], 1, 50.0)]),
        ([USUAL] * 100 + [STEPPED], 0, FLAGS, None, []),
        ([USUAL] * 50, 50, MEASURED, True, []),
    ],
    ids=["the same", "other kernels", "copies that the driver turns into kernels", "under 2 %",
         "another optimizer", "flags that no eager step had", "eager steps in its own trace"],
)  # fmt: skip
def test_the_work_of_a_replay_is_compared_with_eager_s(
    tmp_path: Path, kernels: list[tuple[str, float]], eager: int, replay: ReplayResult,
    same: bool | None, added: list[tuple[str, int, float]],
) -> None:  # fmt: skip
    built = loop_trace(3, lambda b: b.graph(kernels).sync())
    if eager:
        built.step()
        for _ in range(eager):
            built.launch(5)
    built.write(tmp_path / "replay.kineto.json")
    work = whole(tmp_path, replay=replay, replay_trace=TRACED).replay.work
    assert work.same is same
    assert [(change.name, change.count, change.total_us) for change in work.added] == added
    removed = [(change.name, change.count, change.total_us) for change in work.removed]
    assert removed == ([("kernel", 10, 50.0)] if len(kernels) == 97 else [])


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
    step = StepBoundary("period", ("forward", "backward", "optimizer"), ("M",) * 3, "full_step")
    partial = replace(MEASURED, scope="forward_backward")
    work = whole(tmp_path, replay=partial, replay_trace=TRACED, step=step).replay.work
    assert (work.same, work.added, work.removed) == (True, (), ())
    full = whole(tmp_path, replay=MEASURED, replay_trace=TRACED, step=step).replay.work
    assert [change.name for change in full.removed] == ["adam"]


@pytest.mark.parametrize(
    ("replay", "eager_ms"),
    [
        (replace(FLAGS, eager_bursts=((5.0, 5.0),)), 2.5),
        (replace(MEASURED, eager_bursts=((5.0, 5.0),)), 2.5),
        (replace(MEASURED, scope="forward_backward", eager_bursts=((2.0, 2.0),)), 2.0),
    ],
    ids=["own flags", "bursts", "a part of the step"],
)
def test_the_speedup_is_against_the_persons_own_eager_of_the_same_part(
    tmp_path: Path, replay: ReplayResult, eager_ms: float
) -> None:
    step = StepBoundary(
        "period", ("forward", "backward", "optimizer"), ("Net", "", "SGD"), "full_step"
    )
    built = whole(tmp_path, replay=replay, step=step)
    assert built.value("speedup") == pytest.approx(eager_ms / 0.5)
    if replay.scope == "full_step":
        step_ms, replay_ms = known(built.value("step_ms")), known(built.value("replay_ms"))
        assert built.value("speedup") == pytest.approx(step_ms / replay_ms)


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
