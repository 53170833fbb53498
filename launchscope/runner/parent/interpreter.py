"""The command that starts the script's interpreter, with launchscope inside it."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from launchscope.model import Target

# The script's interpreter runs this first. Nothing but the standard library is imported from here,
# and only from its own folder: neither the working directory nor PYTHONPATH is on sys.path while
# launchscope's modules are loaded, so no file of the person runs before the script does.
_BOOTSTRAP = """\
import sys
startup = frozenset(sys.modules)
if not (getattr(sys.flags, 'safe_path', False) or sys.flags.isolated): del sys.path[0]
library = 'python%d%d.zip' % sys.version_info[:2]
ahead = next((n for n, entry in enumerate(sys.path) if entry.endswith(library)), 0)
before = sys.path[:ahead]
del sys.path[:ahead]
try:
    import importlib.util
    folder = sys.argv[1]
    spec = importlib.util.spec_from_file_location(
        'launchscope', folder + '/__init__.py', submodule_search_locations=[folder])
    sys.modules['launchscope'] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    from launchscope.runner.child.main import main
    sys.path[:0] = before
    code = main(*sys.argv[2:4], startup)
except KeyboardInterrupt:  # not in the script, so there is nothing to show
    code = 130
sys.exit(code)
"""
_WITH_ARGUMENT = ("W", "X")
_ENDS_OPTIONS = ("c", "m")


def child_command(python: str | None, folder: Path) -> list[str]:
    """The command that runs the plan in `folder`, under this interpreter or, for None, ours."""
    package = Path(__file__).resolve().parents[2]
    return [
        python or sys.executable,
        *interpreter_options(sys.orig_argv),
        "-c",
        _BOOTSTRAP,
        os.fspath(package),
        os.fspath(folder),
        _nvtx_folder(python),
    ]


def interpreter_options(command: list[str]) -> list[str]:
    """The options of the interpreter in its command line: `-O` and `-W error`, as in
    `python -O -W error -m launchscope profile train.py`."""
    options: list[str] = []
    words = iter(command[1:])
    for word in words:
        if not word.startswith("-") or word in ("-", "--"):
            break
        if word.startswith("--"):  # --check-hash-based-pycs is the only one that runs a program
            options += [word, next(words, "")]
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
