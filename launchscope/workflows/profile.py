"""Measures one script: the run, the folder of its recording, analysis and advice."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from launchscope.config import Settings
from launchscope.errors import (
    InputError,
    LaunchscopeError,
    MeasureError,
    ScriptError,
    UsageError,
    raised_as,
)
from launchscope.host import working_directory
from launchscope.model import Profile, Recording, Schedule, Target
from launchscope.reason_text import reason_text
from launchscope.runner.parent import session
from launchscope.runner.parent.child_watch import ProgressEvent
from launchscope.runner.parent.interpreter import Process
from launchscope.runner.parent.rank_group import RankGroup
from launchscope.runner.protocol.events import FilesLoaded, ScriptFailed
from launchscope.runner.protocol.folder import SourceTree
from launchscope.workflows.progress import Progress
from launchscope.workflows.signals import exit_code_of, ignore_further_signals
from launchscope.workflows.target import interpreter

if TYPE_CHECKING:
    import pandas as pd


_STDERR = 2
_HOW_TO_MEASURE = "leave out --inspect 0: without a GPU, only inspected steps measure anything"
_LONGEST_STEM = 60  # at four bytes each; file systems take names of 255 bytes


class ScriptRun(Struct, frozen=True):
    """One run of the script. With a Profile, `problem` is what went wrong after it was measured;
    without one, why there is none. `failed_later` is as in the Outcome."""

    recording: Recording | None
    profile: Profile | None
    problem: LaunchscopeError | None
    interrupted: bool = False
    loaded: tuple[FilesLoaded, ...] = ()  # below the tree that was named
    failed_later: ScriptError | None = None
    script_error: ScriptFailed | None = None

    def whole(self) -> Profile:
        """The Profile of a run without a problem. Raises MeasureError for one: a script's own exit
        code would be read as the gate's answer."""
        if self.problem is not None:
            text = "interrupted" if self.interrupted else str(self.problem)
            code = self.problem.exit_code if self.interrupted else None
            raise MeasureError(text, hint=self.problem.hint, exit_code=code)
        assert self.profile is not None
        return self.profile


class ProfileResult(Struct, frozen=True):
    """The Profile, and what ended the script after it was measured (None: nothing did)."""

    profile: Profile
    problem: LaunchscopeError | None = None

    @property
    def kernels(self) -> pd.DataFrame:
        """The kernels of a step, the one with the most GPU time first."""
        from launchscope.report import frames

        return frames.kernels(self.profile)


class ScriptRunner:
    """Runs a script under the same settings, one process after another, which print to the file
    descriptor `stdout` (None: that of this process). The files of a recording exist until the next
    run or the end of the `with` block; with `keep_trace` they stay."""

    def __init__(
        self,
        settings: Settings,
        progress: Progress,
        *,
        stdout: int | None = _STDERR,
        group: RankGroup | None = None,
    ):
        if settings.python is not None:
            interpreter(settings.python)
        if settings.step_from == "none":
            raise UsageError(
                "--step-from none is for reading traces: a run needs the steps of the script",
                hint="leave it out, or use auto, marker, optimizer or forward",
            )
        self._settings = settings
        self._progress = progress
        self._stdout = stdout
        self._group = group
        self._folder: Path | None = None
        self._kept: Path | None = None  # the folder to keep; None: one that is free
        self._temporary: TemporaryDirectory[str] | None = None

    def __enter__(self) -> ScriptRunner:
        return self

    def __exit__(self, *error: object) -> None:
        self._release()

    def run(
        self,
        target: Target,
        *,
        schedule: Schedule | None = None,
        environ: Mapping[str, str] | None = None,
        strategy: str | None = None,
        label: str = "",
        folder: str | None = None,
        stdin: int | None = None,
        tree: SourceTree | None = None,
        timeout_s: float | None = None,
    ) -> ScriptRun:
        """Run the target once. `strategy` is what it runs under; `label` makes the name of a kept
        recording's folder differ from those of other runs. It runs in `folder` (None: here), for
        `timeout_s` at most (None: as in the settings)."""
        self._release()
        loading = threading.Thread(target=_load_analysis, daemon=True)
        loading.start()
        options = session.RunOptions(
            process=Process(
                self._settings.python, environ or {}, self._stdout, folder=folder, stdin=stdin
            ),
            timeout_s=timeout_s or self._settings.timeout,
            max_runs=self._settings.max_runs,
            strategy=strategy,
            tree=tree,
            group=self._group,
        )
        schedule = schedule or self._settings.schedule
        try:
            self._folder = self._new_folder(target, label)
            ranks = self._group.size if self._group and self._group.place.on_one_node else None
            started = dataclasses.replace(target, python=self._settings.python, ranks=ranks)
            outcome = session.record(started, schedule, options, self._folder, self._on_event)
            if outcome.interrupted:
                ignore_further_signals()
            loading.join()
            return self._analyzed(outcome)
        except LaunchscopeError as error:
            return ScriptRun(None, None, error)
        except KeyboardInterrupt as error:
            problem = MeasureError("interrupted", exit_code=exit_code_of(error))
            return ScriptRun(None, None, problem, interrupted=True)
        finally:
            self._progress.on_event(ProgressEvent("ended"))

    def _on_event(self, event: ProgressEvent) -> None:
        if event.kind == "results":
            with contextlib.suppress(LaunchscopeError):  # what is damaged is said at the end
                self._progress.so_far(lambda: self._profile(self._recording()))
        else:
            self._progress.on_event(event)

    def _recording(self) -> Recording:
        from launchscope.parser import read_recording

        assert self._folder is not None
        return read_recording(self._folder)

    def _profile(self, recording: Recording) -> Profile:
        from launchscope.workflows.load_input import analyze

        return analyze(recording, self._settings.threshold, self._settings.expected_steps)

    def _analyzed(self, outcome: session.Outcome) -> ScriptRun:
        problem, recording, profile = outcome.problem, None, None
        end = " before anything was measured"
        try:
            recording = self._recording()
        except InputError as error:
            problem = problem or MeasureError(str(error))
        if recording and (recording.timing or recording.inspect or recording.trace):
            profile, end = self._profile(recording), "; this is what was measured until then"
        elif recording and not outcome.interrupted:
            problem = problem or _without_results(recording)
        if outcome.interrupted and outcome.problem is None:
            problem = MeasureError(f"interrupted{end}", exit_code=outcome.exit_code)
        return ScriptRun(
            recording,
            profile,
            problem,
            outcome.interrupted,
            outcome.loaded,
            outcome.failed_later,
            outcome.script_error,
        )

    def _new_folder(self, target: Target, label: str) -> Path:
        """A temporary folder, or with --keep-trace one here."""
        if not self._settings.keep_trace:
            hint = "set TMPDIR to a writable folder with room"
            with raised_as(MeasureError, "cannot make a folder for the results", hint=hint):
                self._temporary = TemporaryDirectory(
                    prefix="launchscope-", ignore_cleanup_errors=True
                )
            return Path(self._temporary.name)
        folder = self._kept or free_folder(target, label)
        hint = "run from a folder that you can write to"
        with raised_as(UsageError, f"--keep-trace: cannot make {folder}", hint=hint):
            folder.mkdir(parents=True)
        return folder

    def _release(self) -> None:
        """Remove the folder of the last run, or say where it is kept."""
        if self._temporary is not None:
            self._temporary.cleanup()
        elif self._folder is not None:
            self._progress.message(f"kept the recording in {self._folder}")
        self._temporary = self._folder = None


def free_folder(target: Target, label: str = "") -> Path:
    """Where a recording is kept: the first name here that is not taken yet, of
    `train.launchscope`, `train-2.launchscope`, ..."""
    stem = (Path(target.name).stem if target.kind == "script" else target.name) + label
    stem = stem.replace(os.sep, "-")[:_LONGEST_STEM]
    names = (f"{stem}{'' if n == 1 else f'-{n}'}.launchscope" for n in itertools.count(1))
    here = Path(working_directory())
    return next(path for path in map(here.joinpath, names) if not os.path.lexists(path))


def _without_results(recording: Recording) -> MeasureError:
    """Why a run without a problem measured nothing."""
    if recording.failures:
        failed = recording.failures[0]
        why = f"the {failed.name} pass gave no result: {reason_text(failed.reason)}"
        return MeasureError(f"nothing was measured: {why}")
    why = "; ".join(("nothing was measured", *recording.notes))
    return MeasureError(why, hint=None if recording.notes else _HOW_TO_MEASURE)


def profile(
    target: Target, settings: Settings, progress: Progress, *, to_stderr: bool = False
) -> ProfileResult:
    """Measures the step of a script, whose stdout is that of this process, or its stderr. Raises
    the problem of the run (ScriptError, MeasureError) if nothing could be measured."""
    stdout = _STDERR if to_stderr else None
    with ScriptRunner(settings, progress, stdout=stdout) as runner:
        run = runner.run(target)
    if run.profile is None:
        assert run.problem is not None
        raise run.problem
    return ProfileResult(_alone(run.profile), run.problem or run.failed_later)


def _alone(profile: Profile) -> Profile:
    """With a note if the script started further ranks itself, or several were started by hand."""
    size = profile.environment.world_size
    if size == 1:
        return profile
    note = (
        f"this is one of {size:,} ranks, because launchscope was started with this one alone: "
        f"launchscope profile --nproc-per-node {size} measures all of them, if the script takes "
        "its rank from a launcher"
    )
    return replace(profile, notes=(*profile.notes, note))


def _load_analysis() -> None:
    """Imports what analyzes, judges and shows a run while the script runs, so that the report is
    quick."""
    import launchscope.report.terminal
    import launchscope.workflows.load_input  # noqa: F401
    from launchscope.parser.sources import sources
    from launchscope.rules import all_rules

    sources()
    all_rules()
