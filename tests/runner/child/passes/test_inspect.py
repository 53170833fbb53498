"""What the inspection finds in its steps taken together."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from launchscope.model import InspectResult
from launchscope.runner.child.ops import step_ops
from launchscope.runner.child.passes.inspect import InspectPass
from tests.runner.steps import context_of


@pytest.fixture
def inspected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InspectResult:
    """Steps with a warning of torch that stands for its warning of a wait."""
    monkeypatch.setattr(step_ops, "_SYNC_WARNING", "degrees of freedom")
    context, one = context_of(tmp_path, torch.nn.Linear(1, 1)), torch.ones(1)
    watched = InspectPass()
    watched.start(context)
    done = False
    while not done:
        watched.begin()
        one.var()
        done = watched.end()
    result = watched.finish(complete=True)
    assert result is not None
    return result


def test_the_op_that_waits_is_named_in_the_next_step(inspected: InspectResult) -> None:
    (blocker,) = inspected.blockers
    assert (blocker.op, blocker.category) == ("aten.var", "other")
    assert blocker.by_step == (1,) * inspected.steps
    assert blocker.where is not None
    assert __file__.endswith(blocker.where.file)
