"""The line of the person's own code behind a call: that of the innermost frame that is theirs."""

from __future__ import annotations

import functools
import linecache
import os
import traceback
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import NamedTuple

from launchscope.host import working_directory
from launchscope.model import SourceLine
from launchscope.runner.child.facts.code_owner import Owner, is_persons, owned_file

_START = working_directory()  # which a script may leave, rename or remove
_BACKWARD = os.path.join("autograd", "__init__.py")  # of torch
# Lines of the person's code that hold a whole step: they call a library's loop.
_library_loops: set[SourceLine] = set()


class CodePlace(NamedTuple):
    """Where something runs. `where` is a line of the person's, as `user_line` finds it; `library`
    the one of a library that runs it, None if `where` does so itself. Without a line of the
    person's both are the library's."""

    where: SourceLine | None
    library: SourceLine | None


def user_line(frame: FrameType | None) -> SourceLine | None:
    """The line of the innermost frame in the person's own code.

    If there is none, or it only calls a library's loop, the line of the innermost frame of a
    library other than torch; None if there is none of those either.
    """
    return code_place(frame).where


def code_place(frame: FrameType | None, otherwise: SourceLine | None = None) -> CodePlace:
    """The place at which the frame runs. `otherwise` is the person's line of frames that have none:
    those of a backward in a thread of torch's."""
    library, in_backward = None, False
    while frame is not None:
        filename = frame.f_code.co_filename
        owner, path = owned_file(filename)
        if owner is Owner.PERSON:
            line = SourceLine(short_path(filename), frame.f_lineno or 0)
            if library is not None and line in _library_loops:
                otherwise = None
                break
            # A library that only starts the backward does not run the ops of it.
            return CodePlace(line, None if in_backward else library)
        if owner is Owner.LIBRARY and library is None:
            library = SourceLine(short_path(filename), frame.f_lineno or 0)
        elif library is None and owner is Owner.TORCH and path == _BACKWARD:
            in_backward = True
        frame = frame.f_back
    return CodePlace(otherwise or library, library)


def calls_by_name(frame: FrameType | None, name: str) -> bool:
    """Whether the person's code that runs here, or a function defined in it, names an attribute."""
    while frame is not None:
        if is_persons(frame.f_code.co_filename) and _names(frame.f_code, name):
            return True
        frame = frame.f_back
    return False


def _names(code: CodeType, name: str) -> bool:
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return name in code.co_names or any(_names(one, name) for one in inner)


def library_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """This frame and its callers, up to the innermost one in the person's own code."""
    while frame is not None and not is_persons(frame.f_code.co_filename):
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


def start_folder() -> str:
    """Where the script was started, whatever it did since."""
    return _START


def package_of(library: SourceLine) -> str:
    """The installed package or module that the line of a library belongs to."""
    path = owned_file(os.path.join(_START, library.file)).path
    return path.partition(os.sep)[0].removesuffix(".py")


def source_text(where: SourceLine | None) -> str | None:
    """The text of the line; None if it is empty, or the file is gone."""
    if where is None:
        return None
    return linecache.getline(os.path.join(_START, where.file), where.line).strip() or None
