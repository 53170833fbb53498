"""Gathers what the runs of a session have written, and writes the one recording.json."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from launchscope import __version__
from launchscope.model import RECORDING_SCHEMA, Schedule, Target
from launchscope.runner.child.passes import BLOCKED, all_passes
from launchscope.runner.parent.child_report import ChildReport
from launchscope.runner.protocol.folder import ResultFolder, without_surrogates

_SCOPES = {"scope_forward_backward": "forward_backward", "scope_forward": "forward"}
_RESULT_FIELDS = (
    *("timing", "trace", "inspect", "replay", "replay_trace"),
    *(*_SCOPES, "verify", "sizes", "adoption", "timing_second"),
)


class Collected:
    """What all runs so far have given, as plain data."""

    def __init__(self, directory: Path):
        self.directory = directory
        self.results: dict[str, Any] = {}
        self.skipped: dict[str, str] = {}
        self.failures: dict[str, Any] = {}
        self.notes: list[str] = []
        self.step: Any = None
        self.environment: Any = None
        self.rehearsal = False
        self.on_gpu: bool | None = None
        self.runs = 0

    def note(self, text: str) -> None:
        """Add a note once."""
        if text not in self.notes:
            self.notes.append(text)

    def lacks(self, name: str) -> bool:
        """True while a pass has neither a result nor a reason for having none."""
        return not (name in self.results or name in self.skipped or name in self.failures)

    def take(self, report: ChildReport) -> None:
        """Read the folder of a run that is over."""
        folder = ResultFolder(report.folder)
        other = self._other_step(folder.read("step"))
        self.environment = folder.read("environment") or self.environment
        self.rehearsal = self.rehearsal or report.rehearsal
        if report.on_gpu is not None:
            self.on_gpu = report.on_gpu
        for kind in all_passes():
            if other is None:
                self._take_pass(kind.name, folder)
            elif self.lacks(kind.name) and folder.read(f"pass-{kind.name}") is not None:
                self.failures[kind.name] = {"name": kind.name, "reason": other}
        broken = report.broken_pass()
        if broken is not None and self.lacks(broken[0]):
            self._take_broken(*broken)
        for text in report.remarks():
            self.note(text)

    def _other_step(self, found: Any) -> str | None:
        """Why what this run gave cannot stand beside the rest: it is of another step.

        A step of another run is the one that is measured, unless nothing was measured of it.
        """
        if found is None:
            return None
        if self.step is None or not self.results or found["period"] == self.step["period"]:
            self.step = found
            return None
        now, before = (" > ".join(step["period"]) for step in (found, self.step))
        return f"its run saw another step ({now}) than was measured before ({before})"

    def _take_pass(self, name: str, folder: ResultFolder) -> None:
        result = folder.read(f"pass-{name}")
        if result is not None:
            file = result.get("file")
            if file and (folder.path / file).exists():
                shutil.move(os.fspath(folder.path / file), self.directory / file)
            self.results[name] = result
        failure = folder.read(f"failure-{name}")
        if failure is not None:
            self.failures[name] = failure
        skipped = folder.read(f"skipped-{name}")
        if skipped is not None:
            self.skipped[name] = reason = skipped["reason"]
            if name == "replay":
                self.results[name] = self._skipped_replay(reason)
            elif name == "verify":
                self.results[name] = {"status": "skipped", "reason": reason}
            elif name in _SCOPES and reason.startswith(BLOCKED):
                self.results[name] = _unmeasured("blocked", reason, _SCOPES[name])

    def _take_broken(self, name: str, reason: str) -> None:
        if name == "replay":
            self.results[name] = _unmeasured("failed", reason)
        elif name in _SCOPES:
            self.results[name] = _unmeasured("failed", reason, _SCOPES[name])
        elif name == "verify":
            self.results[name] = {"status": "skipped", "reason": reason}
        elif name != "warmup":
            self.failures[name] = {"name": name, "reason": reason}

    def _skipped_replay(self, reason: str) -> dict[str, Any]:
        if not reason.startswith(BLOCKED):
            return _unmeasured("skipped", reason)
        blockers = self.results.get("inspect", {}).get("blockers", ())
        where = blockers[0]["where"] if blockers else None
        return {**_unmeasured("blocked", reason), "where": where}

    def write_recording(self, target: Target, schedule: Schedule, exit_code: int | None) -> None:
        """Everything so far as `recording.json`; the trace files lie beside it.

        OSError if there is no room even in place of what the runs wrote.
        """
        if self.on_gpu is False and not self.rehearsal:
            self.note("the script ran on the CPU, although this machine may have a GPU")
        environment = dict(self.environment or {})
        environment["recorded_at"] = datetime.now(timezone.utc).isoformat(timespec="seconds")
        environment["launchscope"] = __version__
        environment["git"] = _git_revision()
        recording = {
            "schema": RECORDING_SCHEMA,
            "target": asdict(target),
            "environment": environment,
            "mode": "gpu" if self.on_gpu else "rehearsal",
            "schedule": asdict(schedule),
            "step": self.step,
            **{name: self.results.get(name) for name in _RESULT_FIELDS},
            "failures": list(self.failures.values()),
            "notes": self.notes,
            "runs": self.runs,
            "exit_code": exit_code,
        }
        # What runs get to read keeps every byte of a path; this is for readers of another kind.
        plain, folder = without_surrogates(recording), ResultFolder(self.directory)
        try:
            folder.write("recording", plain)
        except OSError:
            # All that the runs wrote is in it: on a full disk their folders are room enough.
            for run in self.directory.glob("run-*"):
                shutil.rmtree(run, ignore_errors=True)
            folder.write("recording", plain)


def _unmeasured(status: str, reason: str, scope: str | None = None) -> dict[str, Any]:
    """A ReplayResult without figures, as plain data."""
    result = {"status": status, "reason": reason.removeprefix(BLOCKED)}
    return result if scope is None else {**result, "scope": scope}


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
