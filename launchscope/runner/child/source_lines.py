"""Which line of the person's own code is behind a call: the innermost frame that is theirs."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

from launchscope.model import SourceLine
from launchscope.runner.child.target import is_ours

_LIBRARY_PARTS = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_STDLIB = os.path.dirname(os.__file__) + os.sep
_USER, _LIBRARY, _MACHINERY = 2, 1, 0
_file_kind: dict[str, int] = {}
# Lines of the person's that hold a whole step: a call of a library's loop.
_library_loops: set[SourceLine] = set()


@functools.lru_cache(maxsize=1)
def _torch_folder() -> str:
    return os.path.dirname(os.path.abspath(sys.modules["torch"].__file__ or "")) + os.sep


def is_torch(filename: str) -> bool:
    return filename.startswith(_torch_folder())


def _kind_of(filename: str) -> int:
    kind = _file_kind.get(filename)
    if kind is None:
        if is_ours(filename) or is_torch(filename) or filename.startswith(("<frozen", "<string")):
            kind = _MACHINERY
        elif any(part in filename for part in _LIBRARY_PARTS):
            kind = _LIBRARY
        else:
            kind = _MACHINERY if filename.startswith(_STDLIB) else _USER
        _file_kind[filename] = kind
    return kind


def user_line(frame: Any) -> SourceLine | None:
    """The line of the innermost frame in the person's own code.

    Where none of the stack is theirs, or theirs is only the call of a library's loop, of the
    innermost frame of a library other than torch; None if there is none of those either.
    Relative to the working directory where the file lies below it.
    """
    fallback = None
    while frame is not None:
        filename = frame.f_code.co_filename
        kind = _kind_of(filename)
        if kind == _USER:
            line = SourceLine(short_path(filename), frame.f_lineno or 0)
            return fallback if fallback is not None and line in _library_loops else line
        if kind == _LIBRARY and fallback is None:
            fallback = SourceLine(short_path(filename), frame.f_lineno or 0)
        frame = frame.f_back
    return fallback


def note_library_loop(line: SourceLine) -> bool:
    """From now on, name what happens below this line by the library's lines. True if new."""
    new = line not in _library_loops
    _library_loops.add(line)
    return new


@functools.lru_cache(maxsize=4096)
def short_path(filename: str) -> str:
    relative = os.path.relpath(filename) if os.path.isabs(filename) else filename
    return filename if relative.startswith("..") else relative
