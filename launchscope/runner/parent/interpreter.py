"""The command that starts the script's interpreter, with launchscope inside it."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from launchscope.model import Target

_WITH_ARGUMENT = ("W", "X")
_ENDS_OPTIONS = ("c", "m")


def child_command(python: str | None, folder: Path) -> list[str]:
    """The command that runs the plan in `folder`, under this interpreter or, for None, ours."""
    start = Path(__file__).resolve().parents[1] / "child" / "start.py"
    return [
        python or sys.executable,
        *interpreter_options(sys.orig_argv),
        os.fspath(start),
        os.fspath(folder),
        _nvtx_folder(python),
    ]


def interpreter_options(command: list[str]) -> list[str]:
    """The options of the interpreter in its command line: `-O` and `-W error`, as in
    `python -O -W error -m launchscope profile train.py`.

    Without `-i`: there is no prompt after the script.
    """
    options: list[str] = []
    words = iter(command[1:])
    for word in words:
        if not word.startswith("-") or word in ("-", "--"):
            break
        if word.startswith("--"):  # --check-hash-based-pycs is the only one that runs a program
            options += [word, next(words, "")]
            continue
        alone = re.match("[^WXcm]*", word).group()  # type: ignore[union-attr]
        word = alone.replace("i", "") + word[len(alone) :]
        if word == "-":
            continue
        letters = word[1:]
        for number, letter in enumerate(letters):
            if letter in _ENDS_OPTIONS:
                return options + ([f"-{letters[:number]}"] if number else [])
            if letter in _WITH_ARGUMENT:
                options += [word] if letters[number + 1 :] else [word, next(words, "")]
                break
        else:
            options.append(word)
    return options


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


@contextlib.contextmanager
def streams_closed() -> Iterator[None]:
    """Inside, a new process gets those standard streams closed that were closed when this one
    started, which may have another file there."""
    streams = (sys.__stdin__, sys.__stdout__, sys.__stderr__)
    closed = [number for number, stream in enumerate(streams) if stream is None]
    given = []
    for number in closed:
        with contextlib.suppress(OSError):
            if os.get_inheritable(number):
                os.set_inheritable(number, False)
                given.append(number)
    try:
        yield
    finally:
        for number in given:
            os.set_inheritable(number, True)


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
