"""Gathers what the runs of a session have written, and writes the one recording.json."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import fields, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from launchscope import __version__
from launchscope.model import (
    Environment,
    PassFailure,
    Reason,
    Recording,
    Schedule,
    StepBoundary,
    Target,
)
from launchscope.runner.child.passes import AnyPass, Pass, all_passes
from launchscope.runner.parent.child_report import ChildReport
from launchscope.runner.parent.run_folder import RunFolder
from launchscope.runner.protocol.folder import write_json
from launchscope.runner.protocol.plain import to_plain

Result = TypeVar("Result")

# The passes that analysis knows have a field of their own in the Recording.
_NAMED_RESULTS = {field.name for field in fields(Recording)}


class Collected:
    """What all runs so far have given."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.results: dict[str, Any] = {}  # the result_type of each pass
        self.skipped: set[str] = set()
        self.failures: dict[str, PassFailure] = {}
        self.notes: list[str] = []
        self.step: StepBoundary | None = None
        self.environment = Environment()
        self.rehearsal = False
        self.needs_legacy_stream = False
        self.on_gpu: bool | None = None
        self.runs = 0

    def note(self, text: str) -> None:
        """Add a note once."""
        if text not in self.notes:
            self.notes.append(text)

    def lacks(self, name: str) -> bool:
        """True while a pass has neither a result nor a reason for having none."""
        return not (name in self.results or name in self.skipped or name in self.failures)

    def result(self, kind: type[Pass[Result]]) -> Result | None:
        """What this pass found; None if it has no result yet."""
        return self.results.get(kind.name)

    def take(self, report: ChildReport) -> None:
        """Read the folder of a run that is over."""
        folder = RunFolder(report.folder)
        other_step = self._other_step(folder.read("step", StepBoundary))
        self.environment = folder.read("environment", Environment) or self.environment
        self.rehearsal = self.rehearsal or report.rehearsal
        if report.on_gpu is not None:
            self.on_gpu = report.on_gpu
        name, reason = report.broken_pass() or ("", None)
        for kind in all_passes():
            if other_step is None:
                self._take_pass(kind, folder, report)
            elif self.lacks(kind.name) and (folder.path / f"pass-{kind.name}.json").exists():
                self.failures[kind.name] = PassFailure(kind.name, other_step)
            if reason is not None and kind.name == name and self.lacks(name):
                self._take_cut_off(kind, reason)
        for text in report.remarks():
            self.note(text)

    def _other_step(self, found: StepBoundary | None) -> Reason | None:
        """Why the results of this run cannot stand beside the others: its step is another one.

        The step of the first run that measured something counts.
        """
        if found is None:
            return None
        if self.step is None or not self.results or found.period == self.step.period:
            self.step = found
            return None
        now, before = (" > ".join(step.period) for step in (found, self.step))
        return Reason("other_step", {"now": now, "before": before})

    def _take_pass(self, kind: type[AnyPass], folder: RunFolder, report: ChildReport) -> None:
        name = kind.name
        try:
            result = folder.read(f"pass-{name}", kind.result_type)
        except msgspec.MsgspecError as error:
            self.failures[name] = PassFailure(
                name, Reason("unreadable_result", {"error": str(error)})
            )
            return
        if result is not None:
            file = getattr(result, "file", None)
            if file and (folder.path / file).exists():
                shutil.move(os.fspath(folder.path / file), self.directory / file)
            self.results[name] = result
        elif name in report.failures:
            self.failures[name] = PassFailure(name, report.failures[name])
        if name in report.skipped:
            self.skipped.add(name)

    def _take_cut_off(self, kind: type[AnyPass], reason: Reason) -> None:
        result = kind.cut_off(reason)
        if result is not None:
            self.results[kind.name] = result
        else:
            self.failures[kind.name] = PassFailure(kind.name, reason)

    def write_recording(self, target: Target, schedule: Schedule, exit_code: int | None) -> None:
        """Everything so far as `recording.json`; the trace files lie beside it.

        Raises OSError if there is no room even in place of what the runs wrote.
        """
        if self.on_gpu is False and not self.rehearsal:
            self.note("the script ran on the CPU, although this machine may have a GPU")
        named = {name: one for name, one in self.results.items() if name in _NAMED_RESULTS}
        recording = Recording(
            target=target,
            environment=replace(
                self.environment,
                recorded_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
                launchscope=__version__,
                git=_git_revision(),
            ),
            mode="gpu" if self.on_gpu else "rehearsal",
            schedule=schedule,
            directory="",  # a reader knows where the file lies
            step=self.step,
            failures=tuple(self.failures.values()),
            notes=tuple(self.notes),
            needs_legacy_stream=self.needs_legacy_stream,
            runs=self.runs,
            exit_code=exit_code,
            other_results={
                name: to_plain(one) for name, one in self.results.items() if name not in named
            },
            **named,
        )
        path = self.directory / "recording.json"
        try:
            write_json(path, recording)
        except OSError:
            # The recording holds all that the runs wrote, so their folders can go.
            for run in self.directory.glob("run-*"):
                shutil.rmtree(run, ignore_errors=True)
            write_json(path, recording)


def _git_revision() -> str | None:
    """The commit of the working directory, with a mark if files differ from it."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
