"""Runs of the script: the folder that a recording goes to, the run, and the Profile of it."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from launchscope.config import Settings
from launchscope.errors import InputError, LaunchscopeError, MeasureError, UsageError
from launchscope.model import Profile, Recording, Schedule, Target
from launchscope.workflows.progress import Progress
from launchscope.workflows.signals import exit_code_of, held_back, ignore_further_signals
from launchscope.workflows.target import require_interpreter

if TYPE_CHECKING:
    from launchscope.runner.parent.session import Outcome

_STDERR = 2


@dataclass(frozen=True)
class ScriptRun:
    """One run of the script. With a Profile, `problem` is what went wrong after it was measured;
    without one, why there is none."""

    recording: Recording | None
    profile: Profile | None
    problem: LaunchscopeError | None
    interrupted: bool = False


class ScriptRunner:
    """Runs a script under the same settings, one process after another.

    `stdout` is the file descriptor that the script prints to (None: that of this process). The
    files of a recording exist until the next run or the end of the `with` block; with
    `keep_trace` they stay.
    """

    def __init__(self, settings: Settings, progress: Progress, *, stdout: int | None = _STDERR):
        require_interpreter(settings.python)
        if settings.step_from == "none":
            raise UsageError(
                "--step-from none is for reading traces: a run needs the steps of the script",
                hint="leave it out, or use auto, marker, optimizer or forward",
            )
        self._settings = settings
        self._progress = progress
        self._stdout = stdout
        self._folder: Path | None = None

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
    ) -> ScriptRun:
        """Run the target once. `strategy` is what it runs under; `label` tells the
        folder of a kept recording from those of other runs."""
        from launchscope.runner.parent import session

        self._release()
        loading = threading.Thread(target=_load_analysis, daemon=True)
        loading.start()
        options = session.RunOptions(
            python=self._settings.python,
            timeout_s=self._settings.timeout,
            max_runs=self._settings.max_runs,
            environ=environ or {},
            stdout=self._stdout,
            strategy=strategy,
        )
        outcome: Outcome | None = None
        try:
            with held_back():
                self._folder = self._new_folder(target, label)
            outcome = session.record(
                target,
                schedule or self._settings.schedule,
                options,
                self._folder,
                self._progress.on_event,
            )
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
            self._progress.status("")
            if outcome is not None:
                outcome.settle()

    def _analyzed(self, outcome: Outcome) -> ScriptRun:
        from launchscope.parser import read_recording
        from launchscope.workflows.load_input import analyze

        problem, recording, measured = outcome.problem, None, False
        try:
            recording = read_recording(outcome.directory)
        except InputError:
            pass
        else:
            passes = (recording.timing, recording.inspect, recording.trace)
            measured = any(result is not None for result in passes)
        if outcome.interrupted and problem is None:
            text = (
                "interrupted; this is what was measured until then"
                if measured
                else "interrupted before anything was measured"
            )
            problem = MeasureError(text, exit_code=outcome.exit_code)
        if recording is None or not measured:
            problem = problem or self._nothing_measured(recording)
            return ScriptRun(recording, None, problem, outcome.interrupted)
        profile = analyze(recording, self._settings.threshold, self._settings.expected_steps)
        return ScriptRun(recording, profile, problem, outcome.interrupted)

    def _nothing_measured(self, recording: Recording | None) -> MeasureError:
        left_out = not (self._settings.inspect and self._settings.timing)
        return MeasureError(
            "the run left nothing to report on",
            hint="0 steps leave a pass out; without a GPU only --inspect measures anything"
            if left_out and recording is not None
            else None,
        )

    # ------------------------------------------------------------------------- folders

    def _new_folder(self, target: Target, label: str) -> Path:
        """A temporary folder, or `train.launchscope` (`train-2.launchscope`, ...) here."""
        if not self._settings.keep_trace:
            try:
                return Path(tempfile.mkdtemp(prefix="launchscope-"))
            except OSError as error:
                raise MeasureError(
                    f"cannot make a folder for the results: {error.strerror or error}",
                    hint="set TMPDIR to a writable folder with room",
                ) from error
        stem = (Path(target.name).stem if target.kind == "script" else target.name) + label
        for number in count(1):
            folder = Path.cwd() / f"{stem}{'' if number == 1 else f'-{number}'}.launchscope"
            if not folder.exists():
                break
        try:
            folder.mkdir()
        except OSError as error:
            raise UsageError(
                f"--keep-trace: cannot make {folder}: {error.strerror or error}",
                hint="run from a folder that you can write to",
            ) from error
        return folder

    def _release(self) -> None:
        """Remove the folder of the last run, or say where it is kept."""
        folder, self._folder = self._folder, None
        if folder is None:
            return
        if self._settings.keep_trace:
            self._progress.message(f"kept the recording in {folder}")
            return
        with held_back():  # whatever signal comes meanwhile
            shutil.rmtree(folder, ignore_errors=True)


def _load_analysis() -> None:
    """Imports pandas and what builds on it while the script runs, so that the report is quick."""
    import launchscope.analysis
    import launchscope.rules  # noqa: F401
