"""Smaller parts of a step: which part a line stands in, and when another run tries them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from launchscope.model import Schedule, SourceLine, Target
from launchscope.parser import read_recording
from launchscope.runner.child.passes import all_passes
from launchscope.runner.child.passes.replay import ReplayPass
from launchscope.runner.child.passes.scope_forward import ForwardPass
from launchscope.runner.child.passes.scope_forward_backward import ForwardBackwardPass
from launchscope.runner.parent.child_report import ChildReport
from launchscope.runner.parent.collect import Collected
from launchscope.runner.parent.session import RunOptions, _Session, record
from launchscope.runner.protocol.folder import ResultFolder
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


def test_each_blocker_knows_the_part_of_the_step_it_stands_in(
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


@pytest.fixture
def reason(tmp_path: Path) -> Callable[..., str | None]:
    """`reason(kind, part=..., **results)`: why a scope is skipped with a blocker in that part."""
    import torch

    context = context_of(tmp_path, torch.nn.Linear(1, 1))
    period = ("forward", "backward", "optimizer")
    context.boundary = replace(context.boundary, period=period)

    def skipped(kind: Any, part: str | None = None, **results: Any) -> str | None:
        blocker = {"op": "aten.equal", "where": {"file": "t.py", "line": 3}, "part": part}
        context.results = {
            "inspect": {"signatures": ["a"], "blockers": [blocker] if part else []},
            **results,
        }
        return kind().skip_reason(context)  # type: ignore[no-any-return]

    return skipped


def test_a_line_in_the_optimizer_part_leaves_forward_and_backward(
    reason: Callable[..., str | None],
) -> None:
    what_if = {"status": "what_if"}
    assert reason(ForwardBackwardPass, "optimizer", replay=what_if) is None
    assert reason(ForwardBackwardPass, "backward", replay=what_if) == (
        "blocked: aten.equal at t.py:3 stands in this part of the step"
    )
    assert reason(ForwardPass, "backward", replay=what_if) is None
    assert reason(ForwardPass, "forward", replay=what_if) is not None


def test_no_scope_is_tried_where_a_larger_one_was_captured(
    reason: Callable[..., str | None],
) -> None:
    measured = {"status": "measured"}
    assert reason(ForwardBackwardPass, replay=measured) == "the whole step was captured"
    larger = reason(ForwardPass, replay={"status": "failed"}, scope_forward_backward=measured)
    assert larger == "a larger part of the step was captured"


# ----------------------------------------------------------------------- planning the runs


@pytest.mark.parametrize(
    ("status", "ended", "again"),
    [("failed", False, True), ("what_if", False, True), ("measured", False, False),
     ("skipped", False, False), ("failed", True, False)],
)  # fmt: skip
def test_another_run_tries_smaller_scopes_after_a_capture_that_failed(
    tmp_path: Path, status: str, ended: bool, again: bool
) -> None:
    session = _Session(Target("script", "t.py"), Schedule(), RunOptions(), tmp_path, nothing)
    session.collected.on_gpu = True
    wanted = [kind.name for kind in all_passes()]
    done = {name: {"steps": 1} for name in wanted if not name.startswith("scope_")}
    session.collected.results = {**done, "replay": {"status": status}}
    report = ChildReport(done=not ended, script_ended=ended, steps=0)
    assert ("smaller part" in session._why_again(report, wanted)) is again


def test_a_scope_that_is_blocked_or_whose_process_died_is_a_result(tmp_path: Path) -> None:
    run = ResultFolder(tmp_path)
    run.write("skipped-replay", {"reason": "blocked: the op stream changes"})
    run.write("skipped-verify", {"reason": "the step is compiled"})
    run.write("skipped-scope_forward_backward", {"reason": "blocked: aten.equal stands in it"})
    run.write("skipped-scope_forward", {"reason": "the step has no such part"})
    collected = Collected(tmp_path)
    collected.take(ChildReport(folder=tmp_path, ended=True))
    found = collected.results
    assert (found["replay"]["status"], found["replay"]["reason"]) == (
        "blocked",
        "the op stream changes",
    )
    assert found["verify"] == {"status": "skipped", "reason": "the step is compiled"}
    assert found["scope_forward_backward"]["status"] == "blocked"
    assert "scope_forward" not in found
    assert not collected.lacks("scope_forward")
    other = Collected(tmp_path / "other")
    (tmp_path / "other").mkdir()
    died = ChildReport(folder=tmp_path / "other", current_pass="scope_forward", exit_code=-6)
    other.take(died)
    assert other.results["scope_forward"]["scope"] == "forward"
    assert "SIGABRT" in other.results["scope_forward"]["reason"]


def test_a_step_that_begins_with_its_backward_is_not_captured(tmp_path: Path) -> None:
    context = context_of(tmp_path, torch.nn.Linear(2, 2))
    assert ReplayPass().skip_reason(context) is None
    context.boundary = replace(context.boundary, period=("backward", "optimizer"))
    for kind in (ReplayPass, ForwardPass, ForwardBackwardPass):
        assert "begins with its backward" in (kind().skip_reason(context) or "")
