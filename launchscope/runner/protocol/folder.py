"""The folder between parent and child: the plan, results and an event log.

A result is one JSON file, written whole or not at all. Nothing travels over stdout or stderr.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from json import dumps
from pathlib import Path
from typing import Any

from launchscope.host import write_whole
from launchscope.model import Schedule, Target
from launchscope.runner.protocol.events import Event
from launchscope.runner.protocol.plain import to_plain
from launchscope.visible import inert_json

PLAN_FILE, EVENTS_FILE = "plan.json", "events.jsonl"
# The child renames the first to the second and an error number when it cannot write: on a full
# disk a file can still be renamed.
WRITABLE, UNWRITABLE = "writable", "unwritable-"


@dataclass(frozen=True)
class SourceTree:
    """A tree whose modules are reported; with `instead`, imports get the files of that tree in
    place of its own."""

    root: str
    instead: str | None = None


@dataclass(frozen=True)
class EntryPoint:
    """A function that follows the script in place of the passes, by the dotted name of its module;
    `options` are JSON data for it. What it gets and returns: runner/child/enter/attach.py."""

    module: str
    function: str
    options: dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """Which passes a process runs. After the last one it ends the script; the script of a process
    that does not measure goes on to its own end."""

    target: Target
    passes: tuple[str, ...]
    schedule: Schedule
    measures: bool = True
    rehearses: bool = True  # the CPU stands for a GPU that this machine lacks
    stop_file: str | None = None  # the script ends once this file says that all ranks are measured
    side_stream: bool = True
    own_process: bool = True  # False: the process of the caller of `measure`, never ended
    strategy: str | None = None  # applied after the warm-up
    patience_s: float = 300.0  # after which fewer steps are enough, and forwards alone are a step
    may_train: bool = True  # False: forwards alone were the step in an earlier run
    earlier: dict[str, Any] = field(default_factory=dict)  # results of earlier runs, as JSON data
    parent: int | None = None  # the process with which this one ends
    tree: SourceTree | None = None
    entry_point: EntryPoint | None = None  # then nothing is measured: no pass runs


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON; readers see the old file or the new one, never half of it."""
    write_whole(path, _json(value))


def _json(value: Any) -> bytes:
    return inert_json(dumps(to_plain(value)).encode())  # a kept recording may be printed


class ChildFolder:
    """The child's end. A write that fails, also because an audit hook of the script forbids it, is
    not raised in the script: it sets `error`, and nothing more is written, because a log with gaps
    would describe another run."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.error: OSError | None = None

    def write(self, name: str, value: Any) -> None:
        """Store `value` as NAME.json."""
        if self.error is None:
            with self._keeping_errors():
                write_json(self.path / f"{name}.json", value)

    def emit(self, event: Event) -> None:
        """Append an event to the log."""
        if self.error is None:
            line = _json({"event": type(event).__name__, **to_plain(event)})
            with self._keeping_errors(), (self.path / EVENTS_FILE).open("ab") as log:
                log.write(line + b"\n")

    @contextlib.contextmanager
    def _keeping_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            number = (isinstance(error, OSError) and error.errno) or errno.EPERM
            self.error = OSError(number, os.strerror(number))
            with contextlib.suppress(Exception):
                os.rename(self.path / WRITABLE, self.path / f"{UNWRITABLE}{number}")
