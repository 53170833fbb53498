"""Starts the script's interpreter, with launchscope inside it."""

from __future__ import annotations

import functools
import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from launchscope.errors import MeasureError


@dataclass(frozen=True)
class Process:
    """How the script's process is started. None: as we are."""

    python: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict)  # added to ours
    stdout: int | None = None
    stderr: int | None = None
    folder: str | None = None  # its working directory
    stdin: int | None = None

    def start(self, plan: Path) -> subprocess.Popen[bytes]:
        """A process that carries out the plan in this folder. Raises MeasureError."""
        python = self.python
        if self.folder is not None and python is not None and os.path.dirname(python):
            python = os.path.abspath(python)  # it was given from here
        command = _command(python, plan)
        start = _start_of_stdin()
        if start is not None:  # each run of the script reads all of a file
            os.lseek(0, start, os.SEEK_SET)
        try:
            return subprocess.Popen(
                command,
                env={**os.environ, **self.environ},
                stdin=self.stdin,
                stdout=self.stdout,
                stderr=self.stderr,
                cwd=self.folder,
                # Files that whoever started us handed on are the script's, as in `<(...)` and
                # `3>log`; Python hands on none of ours.
                close_fds=False,
            )
        except OSError as error:
            raise MeasureError(
                f"the interpreter {command[0]} could not be started: {error.strerror}",
                hint="--python takes the path of a Python interpreter",
            ) from None


def _command(python: str | None, plan: Path) -> list[str]:
    """This interpreter, or ours, with our options: `-O` and `-W error`, as in
    `python -O -W error -m launchscope profile train.py`."""
    start = Path(__file__).resolve().parents[1] / "child" / "enter" / "start.py"
    standard: Any = subprocess  # as multiprocessing starts its processes
    options = standard._args_from_interpreter_flags()
    if getattr(sys.__stdout__, "write_through", False):  # the only trace of -u
        options.append("-u")
    interpreter = python or sys.executable
    return [interpreter, *options, os.fspath(start), os.fspath(plan)]


@functools.cache
def _start_of_stdin() -> int | None:
    """Where the standard input was before the first run, if it is a file."""
    try:
        return os.lseek(0, 0, os.SEEK_CUR) if stat.S_ISREG(os.fstat(0).st_mode) else None
    except OSError:
        return None
