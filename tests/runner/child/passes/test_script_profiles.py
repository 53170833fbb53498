"""A script that runs a profiler of its own: what needs none is measured all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from launchscope.model import Reason
from launchscope.runner.child.passes import Skip
from launchscope.runner.child.passes.replay import ReplayPass
from launchscope.runner.child.passes.replay_trace import ReplayTracePass
from tests.runner.children import SMALL_STEP, recorded
from tests.runner.steps import context_of


def test_only_the_trace_of_the_replay_is_left_out(tmp_path: Path) -> None:
    context = context_of(tmp_path, torch.nn.Linear(1, 1))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        # A failure of a pass that captures would end the process, and with it the check.
        assert ReplayTracePass().skip(context) == Skip("skipped", Reason("profiler_busy"))
        assert ReplayPass().skip(context) is None
    assert ReplayTracePass().skip(context) is None
    context.hooks.user_profiler = True
    assert ReplayTracePass().skip(context) is not None


@pytest.mark.child
def test_a_script_under_its_own_profiler_is_inspected(tmp_path: Path) -> None:
    profiled = "with torch.profiler.profile():\n    for _ in range(20):\n        step()\n"
    ran = recorded(tmp_path, SMALL_STEP + profiled)
    assert ran.recording.inspect is not None
    assert ran.recording.inspect.steps == 3
    assert ran.recording.failures == ()
