"""Measures one script: run, analysis and advice."""

from __future__ import annotations

from dataclasses import dataclass

from launchscope.config import Settings
from launchscope.errors import LaunchscopeError
from launchscope.model import Profile, Target
from launchscope.workflows.progress import Progress
from launchscope.workflows.recording import ScriptRunner


@dataclass(frozen=True)
class ProfileResult:
    """The Profile, and what ended the script after it was measured (None: nothing did)."""

    profile: Profile
    problem: LaunchscopeError | None = None


def profile(target: Target, settings: Settings, progress: Progress) -> ProfileResult:
    """Measure the step of a script.

    Raises the problem of the run (ScriptError, MeasureError) if nothing could be measured.
    """
    with ScriptRunner(settings, progress, stdout=None) as runner:
        run = runner.run(target)
    if run.profile is None:
        assert run.problem is not None
        raise run.problem
    return ProfileResult(run.profile, run.problem)
