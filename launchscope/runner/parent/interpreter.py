"""The command that starts the script's interpreter, with launchscope inside it."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from launchscope.model import Target


def child_command(python: str | None, folder: Path) -> list[str]:
    """The command that runs the plan in `folder`, under this interpreter or, for None, ours, with
    our options: `-O` and `-W error`, as in `python -O -W error -m launchscope profile train.py`."""
    start = Path(__file__).resolve().parents[1] / "child" / "start.py"
    standard: Any = subprocess  # as multiprocessing starts its processes
    options = standard._args_from_interpreter_flags()
    if getattr(sys.__stdout__, "write_through", False):  # the only trace of -u
        options.append("-u")
    interpreter = python or sys.executable
    return [interpreter, *options, os.fspath(start), os.fspath(folder), _nvtx_folder(python)]


def child_environment(own: Mapping[str, str]) -> dict[str, str]:
    """Ours and what the child gets of its own, without what makes Python prompt after a script."""
    return {name: text for name, text in os.environ.items() if name != "PYTHONINSPECT"} | dict(own)


@contextlib.contextmanager
def stdin_of(target: Target) -> Iterator[IO[bytes] | None]:
    """What a run of the target reads as its standard input; None: ours.

    A script may run several times. Each run gets the script that `-` names, and each begins where
    an input that is a file began.
    """
    if target.kind == "script" and target.name == "-":
        with tempfile.TemporaryFile() as copy:
            copy.write(_script_on_stdin())
            copy.seek(0)
            yield copy
        return
    start = _start_of_stdin()
    if start is not None:
        os.lseek(0, start, os.SEEK_SET)
    yield None


@functools.cache
def _script_on_stdin() -> bytes:
    return b"" if sys.stdin is None else sys.stdin.buffer.read()


@functools.cache
def _start_of_stdin() -> int | None:
    """Where the standard input was before the first run, if it is a file."""
    try:
        return os.lseek(0, 0, os.SEEK_CUR) if stat.S_ISREG(os.fstat(0).st_mode) else None
    except OSError:
        return None


def _nvtx_folder(python: str | None) -> str:
    """Our own nvtx, lent to a child that runs the same interpreter version; else nothing."""
    if python is not None and os.path.realpath(python) != os.path.realpath(sys.executable):
        return ""
    spec = importlib.util.find_spec("nvtx")
    return os.path.dirname(spec.origin) if spec is not None and spec.origin else ""
