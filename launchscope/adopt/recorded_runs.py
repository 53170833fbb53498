"""Starts runs of a script that are compared with one another, each in a process of its own, and
reads what they recorded."""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec

from launchscope.adopt.record import RECORD_FILE, RESULT, Iteration, RunResult, RunTask
from launchscope.errors import MeasureError
from launchscope.model import Schedule, Target
from launchscope.runner.parent.child_report import ChildReport
from launchscope.runner.parent.child_watch import ChildWatch, ProgressEvent
from launchscope.runner.parent.interpreter import Process
from launchscope.runner.parent.run_folder import RunFolder
from launchscope.runner.protocol.folder import EntryPoint, Plan, SourceTree

_ENTRY_POINTS = "launchscope.adopt.child.entry_points"
_LABELS = {RESULT: "comparing iterations"}
_PRINTED, _ERRORS = "output.txt", "errors.txt"
_LONGEST_OUTPUT = 2**20  # bytes that are compared


@dataclass(frozen=True)
class RecordedRun:
    """What came of one run. `result` None: its process died before it wrote one. `files`: the texts
    of the files that it wrote."""

    report: ChildReport
    result: RunResult | None
    place: Path
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        return self.result is None or self.report.failed

    @functools.cached_property
    def iterations(self) -> tuple[Iteration, ...]:
        """Those that were written whole; the first one is the state before any."""
        lines: list[bytes] = []
        with contextlib.suppress(OSError):
            lines = (self.place / RECORD_FILE).read_bytes().splitlines(keepends=True)
        whole = (line for line in lines if line.endswith(b"\n"))
        return tuple(msgspec.json.decode(line, type=Iteration) for line in whole)

    @functools.cached_property
    def printed(self) -> str:
        """Its standard output, in whole lines where there is more than is compared."""
        content = self._read(_PRINTED)
        return content[: content.rfind("\n") + 1] if len(content) == _LONGEST_OUTPUT else content

    @property
    def said_last(self) -> str:
        """The last line of its standard error, or else of its output; empty without any."""
        texts = (self._read(name, from_end=True) for name in (_ERRORS, _PRINTED))
        lines = (text.strip().splitlines()[-1].strip() for text in texts if text.strip())
        return next(lines, "")

    def _read(self, name: str, *, from_end: bool = False) -> str:
        with contextlib.suppress(OSError), (self.place / name).open("rb") as file:
            if from_end:
                file.seek(-min(_LONGEST_OUTPUT, os.fstat(file.fileno()).st_size), os.SEEK_END)
            return file.read(_LONGEST_OUTPUT).decode(errors="replace")
        return ""


@dataclass
class RecordedRuns:
    """Starts runs, one at a time, in a `with` block; `timeout_s` bounds them together."""

    on_progress: Callable[[ProgressEvent], None]
    timeout_s: float | None = None
    python: str | None = None
    _watch: ChildWatch = field(init=False)

    def __enter__(self) -> RecordedRuns:
        self._watch = ChildWatch(self.on_progress, self.timeout_s, labels=_LABELS)
        self._watch.signals.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._watch.signals.__exit__(*raised)

    def run(
        self,
        target: Target,
        task: RunTask,
        place: Path,
        inside: Path,
        environ: Mapping[str, str],
        tree: SourceTree,
    ) -> RecordedRun:
        """The target in the folder `inside`; files of launchscope, and what it prints, go to
        `place`. It reads a file as standard input, or nothing. Raises MeasureError if it cannot be
        started."""
        entry = EntryPoint(_ENTRY_POINTS, "record", asdict(task))
        plan = Plan(target, (), Schedule(), tree=tree, entry_point=entry)
        folder, result = RunFolder(place), None
        with contextlib.ExitStack() as stack:
            try:
                place.mkdir(parents=True)
                printed, errors = (
                    stack.enter_context((place / name).open("wb")).fileno()
                    for name in (_PRINTED, _ERRORS)
                )
                process = Process(self.python, environ, printed, errors, str(inside), own_input())
                report = self._watch.carry_out(plan, folder, process)
            except OSError as error:
                raise MeasureError(f"a run cannot be started: {error.strerror or error}") from None
        with contextlib.suppress(msgspec.MsgspecError):
            result = folder.read(RESULT, RunResult)
        return RecordedRun(report, result, place)


def own_input() -> int | None:
    """The standard input of each run: a file from its beginning, or nothing, because a pipe can be
    read once."""
    with contextlib.suppress(OSError):
        if stat.S_ISREG(os.fstat(0).st_mode):
            return None
    return subprocess.DEVNULL
