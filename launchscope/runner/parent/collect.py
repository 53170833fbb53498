"""Gathers what the runs of a session have written, and writes the one recording.json."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timezone
from itertools import starmap
from pathlib import Path
from typing import Any

import msgspec

from launchscope import __version__
from launchscope.git import describe_head
from launchscope.model import (
    COUNTING,
    Environment,
    PassFailure,
    Reason,
    Recording,
    Schedule,
    StepBoundary,
    Target,
)
from launchscope.recorded import recorded
from launchscope.runner.parent.child_report import ChildReport
from launchscope.runner.parent.run_folder import RunFolder
from launchscope.runner.protocol.events import FilesLoaded
from launchscope.runner.protocol.folder import write_json
from launchscope.runner.protocol.passes import PASSES, PassInfo
from launchscope.runner.protocol.plain import to_plain

# The passes that analysis knows have a field of their own in the Recording.
_NAMED_RESULTS = {own.name for own in fields(Recording)}


@dataclass
class Collected:
    """What all runs so far have given, by pass where it is a dict."""

    directory: Path
    results: dict[str, Any] = field(default_factory=dict)  # each of the pass's result_type
    skipped: set[str] = field(default_factory=set)
    failures: dict[str, Reason] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    step: StepBoundary | None = None
    environment: Environment = field(default_factory=Environment)
    needs_legacy_stream: bool = False
    on_gpu: bool | None = None
    runs: int = 0
    loaded: list[FilesLoaded] = field(default_factory=list)  # one of each run that reported it

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def lacks(self, name: str) -> bool:
        """True while a pass has neither a result nor a reason for having none."""
        return not (name in self.results or name in self.skipped or name in self.failures)

    def take(self, report: ChildReport) -> None:
        """Read the folder of a run that is over."""
        folder = RunFolder(report.folder)
        if report.loaded is not None:
            self.loaded.append(report.loaded)
        other_step = self._other_step(folder.read("step", StepBoundary))
        self.environment = folder.read("environment", Environment) or self.environment
        if report.on_gpu is not None:
            self.on_gpu = report.on_gpu
        for kind in PASSES.values():
            if other_step is None:
                self._take_pass(kind, folder, report)
            elif self.lacks(kind.name) and (folder.path / f"pass-{kind.name}.json").exists():
                self.failures[kind.name] = other_step
        name, reason = report.broken_pass() or ("", None)
        if reason is not None and name in PASSES and self.lacks(name):
            if (cut_off := PASSES[name].cut_off) is not None:
                self.results[name] = cut_off(reason)
            else:
                self.failures[name] = reason
        for text in report.remarks():
            self.note(text)

    def _other_step(self, found: StepBoundary | None) -> Reason | None:
        """Why the results of this run cannot be combined with the others: its step differs from
        that of the first run that measured something."""
        if found is None:
            return None
        if self.step is None or not self.results or _events(found) == _events(self.step):
            self.step = found
            return None
        other = found.period != self.step.period
        now, before = (
            " > ".join(step.period if other else step.names) for step in (found, self.step)
        )
        return Reason("other_step", {"now": now, "before": before})

    def _take_pass(self, kind: PassInfo, folder: RunFolder, report: ChildReport) -> None:
        name = kind.name
        try:
            result = folder.read(f"pass-{name}", kind.result_type)
        except msgspec.MsgspecError as error:
            self.failures[name] = Reason("unreadable_result", {"error": str(error)})
            return
        if result is not None:
            file = getattr(result, "file", None)
            if file and (folder.path / file).exists():
                shutil.move(os.fspath(folder.path / file), self.directory / file)
            self.results[name] = result
        elif name in report.failures:
            self.failures[name] = report.failures[name]
        if name in report.skipped:
            self.skipped.add(name)

    def write_recording(self, target: Target, schedule: Schedule, exit_code: int | None) -> None:
        """Everything so far as `recording.json`, beside the trace files. Raises OSError if there is
        no room."""
        named = {name: one for name, one in self.results.items() if name in _NAMED_RESULTS}
        other = {name: one for name, one in self.results.items() if name not in named}
        recording = Recording(
            target=recorded(target),
            environment=replace(
                self.environment,
                recorded_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
                launchscope=__version__,
                git=describe_head(),
            ),
            mode="gpu" if self.on_gpu else "rehearsal",
            counting=COUNTING,
            schedule=schedule,
            directory="",  # a reader knows where the file lies
            step=self.step,
            failures=tuple(starmap(PassFailure, self.failures.items())),
            notes=tuple(self.notes),
            needs_legacy_stream=self.needs_legacy_stream,
            runs=self.runs,
            exit_code=exit_code,
            other_results=to_plain(other),
            **named,
        )
        write_json(self.directory / "recording.json", recording)


def _events(step: StepBoundary) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return step.period, step.names
