"""Runs one point of a comparison: a fresh child, its Profile or the reason why there is none."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from launchscope.cli.console import Console
from launchscope.cli.profile import profile_of
from launchscope.config import Settings
from launchscope.errors import LaunchscopeError, ScriptError
from launchscope.model import Point, PointFailure, Profile, Recording, Schedule, Target
from launchscope.workflows.axes import Combination
from launchscope.workflows.recording import record, remove, temporary_folder
from launchscope.workflows.signals import exit_code_of, held_back

if TYPE_CHECKING:
    from launchscope.runner.parent.session import Outcome

_STDERR = 2


@dataclass(frozen=True)
class PointResult:
    """What one run of the script gave."""

    recording: Recording | None
    profile: Profile | None
    failure: PointFailure | None
    interrupted: bool = False


class Runner:
    """Runs the script under given settings, one child after another.

    What the script prints goes to stderr, so that stdout holds the report alone. The files of
    a recording are there until the next run, or the end of the `with` block.
    """

    def __init__(self, settings: Settings, screen: Console):
        self._settings = settings
        self._screen = screen
        self._directory: Path | None = None
        self.exit_code = 130  # of a comparison that was interrupted, by which signal

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *error: object) -> None:
        self._drop()

    def _drop(self) -> None:
        if self._directory is not None:
            remove(self._directory)
            self._directory = None

    def run(
        self,
        combination: Combination,
        *,
        schedule: Schedule | None = None,
        adopt: str | None = None,
    ) -> PointResult:
        """One run; `adopt` names the way to adopt graphs that the script runs under."""
        settings = self._settings
        self._drop()
        try:
            with held_back():
                self._directory = temporary_folder()
            outcome = self._record(
                combination, schedule or settings.schedule, adopt, self._directory
            )
            outcome.settle()
            return self._judged(outcome)
        except LaunchscopeError as error:
            return PointResult(None, None, failure_of(error))
        except KeyboardInterrupt as error:
            self.exit_code = exit_code_of(error)
            return PointResult(None, None, PointFailure("interrupted"), interrupted=True)
        finally:
            if settings.keep_trace and self._directory is not None:
                self._keep(combination, adopt, self._directory)

    def _record(
        self, combination: Combination, schedule: Schedule, adopt: str | None, directory: Path
    ) -> Outcome:
        from launchscope.runner.parent.session import RunOptions

        options = RunOptions(
            python=self._settings.python,
            timeout_s=self._settings.timeout,
            max_runs=self._settings.max_runs,
            environ=combination.environ,
            stdout=_STDERR,
            strategy=adopt,
        )
        return record(combination.target, schedule, options, directory, self._screen)

    def _judged(self, outcome: Outcome) -> PointResult:
        from launchscope.parser import read_recording

        recording: Recording | None = None
        profile: Profile | None = None
        failure = None if outcome.problem is None else failure_of(outcome.problem)
        try:
            recording = read_recording(outcome.directory)
            profile = profile_of(outcome, self._settings)
        except LaunchscopeError as error:
            failure = failure or failure_of(error)
        if outcome.interrupted:
            failure = failure or PointFailure("interrupted")
            self.exit_code = outcome.exit_code
        return PointResult(recording, profile, failure, outcome.interrupted)

    def _keep(self, combination: Combination, adopt: str | None, directory: Path) -> None:
        name = "-".join(
            [
                Path(combination.target.name).stem,
                *combination.parameters.values(),
                *((adopt,) if adopt else ()),
            ]
        )
        place, number = Path.cwd() / f"{name}.launchscope", 1
        while place.exists():
            number += 1
            place = Path.cwd() / f"{name}-{number}.launchscope"
        try:
            shutil.copytree(directory, place)
        except OSError as error:
            self._screen.error(f"--keep-trace: cannot write {place}: {error.strerror or error}")
        else:
            self._screen.progress(f"kept the recording in {place}")


def point_of(combination: Combination, ran: PointResult) -> Point:
    """The point of a run, with its samples per second."""
    from launchscope.analysis.comparison.points import with_rates

    return with_rates(
        Point(
            combination.parameters,
            combination.target,
            combination.batch_size,
            ran.profile,
            ran.failure,
        )
    )


def failure_of(error: LaunchscopeError) -> PointFailure:
    """An error as the row of a table says it."""
    text = str(error)
    starved = "OutOfMemoryError" in text
    code = error.exit_code if isinstance(error, ScriptError) else None
    if starved:
        when = "after it was measured in part" if "every pass" in text else "before it was measured"
        text = f"out of GPU memory, {when}"
    return PointFailure(text, code, starved, None if starved else error.hint)


def relative(target: Target) -> Target:
    """The target with its script as a path below the working directory, where it is one."""
    path = Path(target.name)
    if target.kind == "script" and path.is_absolute():
        shorter = os.path.relpath(path)
        return target if shorter.startswith("..") else replace(target, name=shorter)
    return target
