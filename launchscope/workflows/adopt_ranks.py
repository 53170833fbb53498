"""What the other ranks do while rank 0 makes a change: the same runs, one after another."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from launchscope.adopt.observed_runs import ObservedRuns, RankTask
from launchscope.config import Settings
from launchscope.runner.parent.rank_group import RankGroup
from launchscope.workflows.profile import ScriptRun, ScriptRunner
from launchscope.workflows.progress import Progress
from launchscope.workflows.ranks import RankRunner, wait_for_report


@contextlib.contextmanager
def step_runner(
    settings: Settings, progress: Progress, group: RankGroup | None
) -> Iterator[ScriptRunner]:
    """Measures the step of a script, whose output is not shown; on all ranks of a group."""
    with open(os.devnull, "wb") as nowhere, contextlib.ExitStack() as stack:
        out = nowhere.fileno()
        made = (
            ScriptRunner(settings, progress, stdout=out)
            if group is None
            else RankRunner(settings, progress, group, stdout=out, for_gate=True)
        )
        yield stack.enter_context(made)


def measured(runner: ScriptRunner, task: RankTask) -> ScriptRun:
    return runner.run(
        task.target,
        folder=task.inside,
        environ=task.environ,
        tree=task.tree,
        timeout_s=task.timeout_s,
    )


def follow(group: RankGroup, settings: Settings, progress: Progress) -> int:
    """On another rank than 0, whatever rank 0 begins, until it has reported. The exit code."""
    quiet, limit = Progress(), settings.timeout
    deadline = None if limit is None else time.monotonic() + limit
    while (content := group.next_task()) is not None and not group.interrupted:
        task = RankTask.read(content)
        if not task.observations:
            with step_runner(settings, quiet, group) as runner:
                measured(runner, task)
            continue
        # A second at least: rank 0 gives up at the same time, and says so.
        left = None if deadline is None else max(deadline - time.monotonic(), 1.0)
        with ObservedRuns(quiet.on_event, left, settings.python, group=group) as runs:
            runs.follow(task)
    return wait_for_report(group, progress)
