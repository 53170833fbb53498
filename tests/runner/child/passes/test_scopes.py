"""Smaller parts of a step: which part a line belongs to, and when another run tries them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from launchscope.model import (
    BlockerRecord,
    InspectResult,
    OpRecord,
    Reason,
    ReplayResult,
    ReplayStatus,
    Schedule,
    SourceLine,
    StepEvent,
    StepPart,
    Target,
    VerifyResult,
)
from launchscope.parser import read_recording
from launchscope.runner.child.passes import Context, Skip
from launchscope.runner.child.passes.replay import ReplayPass
from launchscope.runner.child.passes.scope_forward import ForwardPass
from launchscope.runner.child.passes.scope_forward_backward import ForwardBackwardPass
from launchscope.runner.child.passes.verify import VerifyPass
from launchscope.runner.child.source_lines import raising_frame, user_line
from launchscope.runner.parent.child_report import ChildReport
from launchscope.runner.parent.collect import Collected
from launchscope.runner.parent.session import RunOptions, _Session, record
from launchscope.runner.protocol.events import ScriptEnded
from launchscope.runner.protocol.passes import PASSES
from launchscope.runner.protocol.plain import to_plain
from tests.runner.steps import context_of

SCRIPT = """
import torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(40):
    loss = model(torch.randn(4, 8, device="cuda")).pow(2).mean()
    first = loss.item()
    optimizer.zero_grad()
    loss.backward()
    second = loss.item()
    optimizer.step()
"""


def nothing(event: object) -> None: ...


def done() -> None: ...


@pytest.mark.child
def test_each_blocker_knows_its_part_of_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    folder = tmp_path / "recording"
    folder.mkdir()
    outcome = record(Target("script", "train.py"), Schedule(), RunOptions(), folder, nothing)
    outcome.settle()
    assert outcome.problem is None
    inspected = read_recording(folder).inspect
    assert inspected is not None
    found = [(blocker.where, blocker.part) for blocker in inspected.blockers]
    assert found == [
        (SourceLine("train.py", 7), "forward"),
        (SourceLine("train.py", 10), "optimizer"),
    ]


# ------------------------------------------------------------------ which scope is tried

MEASURED, FAILED, WHAT_IF = (
    ReplayResult("measured"),
    ReplayResult("failed"),
    ReplayResult("what_if"),
)
WHERE = SourceLine("t.py", 3)
AT_THE_LINE = Reason("blocker_in_part", {"op": "aten.equal", "file": "t.py", "line": 3})


def inspected(*parts: StepPart) -> InspectResult:
    """An inspection that found a blocker in each of these parts of the step."""
    blockers = tuple(BlockerRecord("aten.equal", "sync", WHERE, 1, part=part) for part in parts)
    return InspectResult(3, ("a",) * 3, ((),) * 3, (5,) * 3, blockers)


@pytest.fixture
def context(tmp_path: Path) -> Context:
    context = context_of(tmp_path, torch.nn.Linear(1, 1))
    period: tuple[StepEvent, ...] = ("forward", "backward", "optimizer")
    context.boundary = replace(context.boundary, period=period)
    return context


def test_a_line_in_the_optimizer_part_leaves_forward_and_backward(context: Context) -> None:
    context.results = {"replay": WHAT_IF, "inspect": inspected("optimizer")}
    assert ForwardBackwardPass().skip(context) is None
    context.results["inspect"] = inspected("backward")
    assert ForwardBackwardPass().skip(context) == Skip("blocked", AT_THE_LINE)
    assert ForwardPass().skip(context) is None
    context.results["inspect"] = inspected("forward")
    assert ForwardPass().skip(context) is not None


def test_no_scope_is_tried_where_a_larger_one_was_captured(context: Context) -> None:
    context.results = {"replay": MEASURED}
    assert ForwardBackwardPass().skip(context) == Skip("skipped", Reason("whole_step_captured"))
    context.results = {"replay": FAILED, "scope_forward_backward": MEASURED}
    assert ForwardPass().skip(context) == Skip("skipped", Reason("larger_part_captured"))


def test_results_of_an_earlier_run_count(context: Context) -> None:
    context.earlier = {"replay": to_plain(MEASURED), "inspect": to_plain(inspected("forward"))}
    assert ForwardBackwardPass().skip(context) == Skip("skipped", Reason("whole_step_captured"))
    context.results = {"replay": FAILED}
    assert ForwardBackwardPass().skip(context) == Skip("blocked", AT_THE_LINE)


def test_a_skipped_replay_names_what_blocks_it(context: Context) -> None:
    context.own_process = False
    context.results = {"inspect": inspected("forward")}
    replay = ReplayPass()
    skip = replay.skip(context)
    assert skip is not None
    result = replay.skipped(context, skip)
    assert (result.status, result.where) == ("blocked", WHERE)
    assert replay.skipped(context, Skip("skipped", Reason("already_graphed"))).status == "skipped"


def test_a_wait_inside_an_unknown_op_has_no_stub(context: Context) -> None:
    waits = inspected("forward")
    unknown = replace(waits.blockers[0], op="cudaStreamSynchronize")
    context.results = {"inspect": replace(waits, blockers=(*waits.blockers, unknown))}
    reason = Reason("no_stub", {"op": "cudaStreamSynchronize"})
    assert ReplayPass().skip(context) == Skip("blocked", reason)


class Began:
    """A capture that has begun."""

    def abandon(self) -> None: ...


def ends() -> None:
    raise RuntimeError("not while a capture records")


def refused(context: Context, part: StepPart, ops: int = 1) -> ReplayResult:
    """The result of a capture that ended with an error at a line with so many ops."""
    replay = ReplayPass()
    replay.start(context)
    if part == "backward":
        replay.part_ended("forward")
    replay._capture = Began()  # type: ignore[assignment]
    try:
        ends()
    except RuntimeError as error:
        where = user_line(raising_frame(error))
        known = tuple(OpRecord(f"library.op{number}", where) for number in range(ops))
        context.results["inspect"] = replace(inspected(), ops=known)
        result = replay.failed_inside_step(error)
    assert result is not None
    assert (result.status, result.where) == ("failed", where)
    return result


def test_an_op_that_a_capture_refuses_is_named_with_its_line(context: Context) -> None:
    found = refused(context, "forward")
    assert found.refused is not None
    assert (found.refused.op, found.refused.where) == ("library.op0", found.where)
    assert found.refused.code == 'raise RuntimeError("not while a capture records")'
    several = refused(context, "forward", ops=2).refused
    assert several is not None
    assert several.op == "unknown"


def test_a_call_after_the_one_that_broke_the_capture_is_not_blamed(context: Context) -> None:
    class AcceleratorError(RuntimeError):
        error_code = 901

    replay = ReplayPass()
    replay.start(context)
    replay._capture = Began()  # type: ignore[assignment]
    result = replay.failed_inside_step(AcceleratorError("previous error during capture"))
    assert result is not None
    assert (result.status, result.refused) == ("failed", None)


def test_a_part_without_the_op_that_a_capture_refuses_is_tried(context: Context) -> None:
    context.results["replay"] = refused(context, "backward")
    skip = ForwardBackwardPass().skip(context)
    assert skip is not None
    assert (skip.status, skip.reason.details["op"]) == ("blocked", "library.op0")
    assert ForwardPass().skip(context) is None
    context.results["replay"] = refused(context, "forward")
    assert ForwardPass().skip(context) is not None


def test_a_scope_that_is_blocked_has_a_result(context: Context) -> None:
    blocked = ForwardPass().skipped(context, Skip("blocked", AT_THE_LINE))
    assert blocked == ReplayResult("blocked", AT_THE_LINE, scope="forward")
    assert ForwardPass().skipped(context, Skip("skipped", Reason("no_such_part"))) is None
    compiled = Reason("compiled_step")
    skipped = VerifyPass().skipped(context, Skip("skipped", compiled))
    assert skipped == VerifyResult("skipped", compiled)


# ----------------------------------------------------------------------- planning the runs


@pytest.mark.parametrize(
    ("status", "ended", "again"),
    [("failed", False, True), ("what_if", False, True), ("measured", False, False),
     ("skipped", False, False), ("failed", True, False)],
)  # fmt: skip
def test_another_run_tries_smaller_scopes_after_a_capture_that_failed(
    tmp_path: Path, status: ReplayStatus, ended: bool, again: bool
) -> None:
    session = _Session(Target("script", "t.py"), Schedule(), RunOptions(), tmp_path, nothing)
    session.collected.on_gpu = True
    session.collected.results = {
        kind.name: None for kind in PASSES.values() if kind.part_of is None
    }
    session.collected.results["replay"] = ReplayResult(status)
    report = ChildReport(done=not ended, script=ScriptEnded() if ended else None)
    assert session._why_again(report) == (Reason("smaller_part") if again else None)


def test_no_run_tries_a_scope_after_a_capture_that_the_forward_refuses(
    tmp_path: Path, context: Context
) -> None:
    session = _Session(Target("script", "t.py"), Schedule(), RunOptions(), tmp_path, nothing)
    session.collected.on_gpu = True
    session.collected.results = {
        kind.name: None for kind in PASSES.values() if kind.part_of is None
    }
    tried: tuple[tuple[StepPart, bool], ...] = (("backward", True), ("forward", False))
    for part, again in tried:
        session.collected.results["replay"] = refused(context, part)
        assert (session._why_again(ChildReport(done=True)) is not None) is again


def test_a_process_that_dies_in_a_scope_leaves_its_result(tmp_path: Path) -> None:
    collected = Collected(tmp_path)
    died = ChildReport(folder=tmp_path, current_pass="scope_forward", exit_code=-6)
    died.skipped.add("scope_forward_backward")
    collected.take(died)
    assert collected.results["scope_forward"].scope == "forward"
    assert collected.results["scope_forward"].reason == Reason("process_died", {"exit_code": -6})
    assert not collected.lacks("scope_forward_backward")


def test_a_step_that_begins_with_its_backward_is_not_captured(context: Context) -> None:
    assert ReplayPass().skip(context) is None
    context.boundary = replace(context.boundary, period=("backward", "optimizer"))
    for kind in (ReplayPass, ForwardPass, ForwardBackwardPass):
        assert kind().skip(context) == Skip("skipped", Reason("begins_with_backward"))
