"""Smaller parts of a step: which part a line belongs to, and when another run tries them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from launchscope.model import (
    BlockerRecord,
    InspectResult,
    Reason,
    ReplayResult,
    ReplayStatus,
    Schedule,
    SourceLine,
    StepPart,
    Target,
)
from launchscope.runner.child.passes import Context, Skip
from launchscope.runner.child.passes.replay import ReplayPass
from launchscope.runner.child.passes.scope_forward import ForwardPass
from launchscope.runner.child.passes.scope_forward_backward import ForwardBackwardPass
from launchscope.runner.parent.child_report import ChildReport
from launchscope.runner.parent.session import RunOptions, _Session
from launchscope.runner.protocol.events import ScriptEnded
from launchscope.runner.protocol.passes import PASSES
from launchscope.runner.protocol.plain import to_plain
from tests.runner.steps import context_of

# ------------------------------------------------------------------ which scope is tried

MEASURED, FAILED = ReplayResult("measured"), ReplayResult("failed")
WHERE = SourceLine("t.py", 3)
AT_THE_LINE = Skip(
    "blocked", Reason("blocker_in_part", {"op": "aten.equal", "file": "t.py", "line": 3})
)


def inspected(*parts: StepPart) -> InspectResult:
    """An inspection that found a blocker in each of these parts of the step."""
    blockers = tuple(BlockerRecord("aten.equal", "sync", WHERE, 1, part=part) for part in parts)
    return InspectResult(3, ("a",) * 3, ((),) * 3, (5,) * 3, blockers)


@pytest.fixture
def context(tmp_path: Path) -> Context:
    context = context_of(tmp_path, torch.nn.Linear(1, 1))
    context.boundary = replace(context.boundary, period=("forward", "backward", "optimizer"))
    return context


@pytest.mark.parametrize(
    ("part", "forward_backward", "forward"),
    [("optimizer", None, None), ("backward", AT_THE_LINE, None),
     ("forward", AT_THE_LINE, AT_THE_LINE)],
)  # fmt: skip
@pytest.mark.parametrize("earlier", [False, True])  # results of an earlier run count
def test_a_line_blocks_the_parts_that_contain_it(
    context: Context,
    part: StepPart,
    forward_backward: Skip | None,
    forward: Skip | None,
    earlier: bool,
) -> None:
    results: dict[str, Any] = {"replay": ReplayResult("what_if"), "inspect": inspected(part)}
    if earlier:
        context.earlier = {name: to_plain(result) for name, result in results.items()}
    else:
        context.results = results
    assert ForwardBackwardPass().skip(context) == forward_backward
    assert ForwardPass().skip(context) == forward


def test_a_skipped_replay_names_what_blocks_it(context: Context) -> None:
    context.own_process = False
    context.results = {"inspect": inspected("forward")}
    replay = ReplayPass()
    skip = replay.skip(context)
    assert skip is not None
    result = replay.skipped(context, skip)
    assert (result.status, result.where) == ("blocked", WHERE)
    assert replay.skipped(context, Skip("skipped", Reason("already_graphed"))).status == "skipped"


def test_what_no_capture_can_contain_is_not_captured(context: Context) -> None:
    assert ReplayPass().skip(context) is None
    waits = inspected("forward")
    unknown = replace(waits.blockers[0], op="cudaStreamSynchronize")
    context.results = {"inspect": replace(waits, blockers=(*waits.blockers, unknown))}
    reason = Reason("no_stub", {"op": "cudaStreamSynchronize"})
    assert ReplayPass().skip(context) == Skip("blocked", reason)
    context.boundary = replace(context.boundary, period=("backward", "optimizer"))
    for kind in (ReplayPass, ForwardPass, ForwardBackwardPass):
        assert kind().skip(context) == Skip("skipped", Reason("begins_with_backward"))


# ----------------------------------------------------------------------- planning the runs


@pytest.mark.parametrize(
    ("status", "ended", "again"),
    [("failed", False, True), ("what_if", False, True), ("measured", False, False),
     ("skipped", False, False), ("failed", True, False)],
)  # fmt: skip
def test_another_run_tries_smaller_scopes_after_a_capture_that_failed(
    tmp_path: Path, status: ReplayStatus, ended: bool, again: bool
) -> None:
    target = Target("script", "t.py")
    session = _Session(target, Schedule(), RunOptions(), tmp_path, lambda event: None)
    session.collected.on_gpu = True
    session.collected.results = {
        kind.name: None for kind in PASSES.values() if kind.part_of is None
    }
    session.collected.results["replay"] = ReplayResult(status)
    report = ChildReport(done=not ended, script=ScriptEnded() if ended else None)
    assert session._why_again(report) == (Reason("smaller_part") if again else None)
