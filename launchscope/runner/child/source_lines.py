"""The line of the person's own code behind a call: that of the innermost frame that is theirs."""

from __future__ import annotations

import functools
import linecache
import os
import sys
import traceback
from collections.abc import Iterator
from types import FrameType

from launchscope.host import working_directory
from launchscope.model import SourceLine
from launchscope.runner.child.target import is_ours

_LIBRARY_PARTS = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_STDLIB = os.path.dirname(os.__file__) + os.sep
_START = working_directory()  # which a script may leave, rename or remove
_USER, _LIBRARY, _MACHINERY = 2, 1, 0
# Lines of the person's code that hold a whole step: they call a library's loop.
_library_loops: set[SourceLine] = set()


@functools.cache
def _torch_folder() -> str:
    return os.path.dirname(os.path.abspath(sys.modules["torch"].__file__ or "")) + os.sep


def is_torch(filename: str) -> bool:
    return filename.startswith(_torch_folder())


@functools.cache
def _kind_of(filename: str) -> int:
    if is_ours(filename) or is_torch(filename) or filename.startswith(("<frozen", "<string")):
        return _MACHINERY
    if any(part in filename for part in _LIBRARY_PARTS):
        return _LIBRARY
    return _MACHINERY if filename.startswith(_STDLIB) else _USER


def is_machinery(filename: str) -> bool:
    """Whether a file belongs to Python, torch or launchscope."""
    return _kind_of(filename) == _MACHINERY


def user_line(frame: FrameType | None) -> SourceLine | None:
    """The line of the innermost frame in the person's own code.

    If there is none, or it only calls a library's loop, the line of the innermost frame of a
    library other than torch; None if there is none of those either.
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


def library_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """This frame and its callers, up to the innermost one in the person's own code."""
    while frame is not None and _kind_of(frame.f_code.co_filename) != _USER:
        yield frame
        frame = frame.f_back


def raising_frame(error: BaseException) -> FrameType | None:
    """The innermost frame of the error's traceback; None if it has none."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return frames[-1] if frames else None


def note_library_loop(line: SourceLine) -> bool:
    """Report what happens below this line by the library's lines from now on. True if new."""
    new = line not in _library_loops
    _library_loops.add(line)
    return new


@functools.cache
def _root() -> str:
    """The repository that the script was started in; without one, the folder."""
    folder = _START
    while not os.path.lexists(os.path.join(folder, ".git")):
        folder, below = os.path.dirname(folder), folder
        if folder == below:
            return _START
    return folder


@functools.lru_cache(maxsize=4096)
def short_path(filename: str) -> str:
    """Relative to the folder that the script was started in, where the file lies in the same
    repository: baselines of two checkouts have the same names."""
    if not os.path.isabs(filename):
        return filename
    path = os.path.normpath(filename)
    is_inside = path.startswith(os.path.join(_root(), ""))
    return os.path.relpath(path, _START) if is_inside else path


def source_of(filename: str) -> list[str]:
    """The lines of a file; none where a loader of the script would have to be asked for them."""
    known = linecache.cache.get(filename)
    lazy = known is not None and len(known) == 1
    return [] if lazy and not os.path.exists(filename) else linecache.getlines(filename)


def source_text(where: SourceLine | None) -> str | None:
    """The text of the line; None if it is empty, or the file is gone."""
    if where is None:
        return None
    lines = source_of(os.path.join(_START, where.file))
    return "".join(lines[where.line - 1 : where.line]).strip() or None
