"""The owner of the code in a file, and the line of the person's own code behind a call: the line of
their innermost frame. The locations of torch, Python and installed packages in this process decide,
not the names of folders."""

from __future__ import annotations

import enum
import functools
import linecache
import os
import site
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

from launchscope.host import holds_packages, working_directory
from launchscope.model import SourceLine
from launchscope.runner.child.facts.torch_types import Torch

_START = working_directory()  # which a script may leave, rename or remove
_BACKWARD = os.path.join("autograd", "__init__.py")  # of torch
# Lines of the person's code that hold a whole step: they call a library's loop.
_library_loops: set[SourceLine] = set()


class Owner(enum.Enum):
    PERSON = enum.auto()  # an editable installation too
    LIBRARY = enum.auto()
    TORCH = enum.auto()
    PYTHON = enum.auto()  # and code without a file, which something has generated
    LAUNCHSCOPE = enum.auto()


class OwnedFile(NamedTuple):
    owner: Owner
    path: str  # from the folder of the owner; a person's file has none


# Code without a file that is the person's all the same.
_TYPED = ("<stdin>", "<ipython-input")
_PERSONS = OwnedFile(Owner.PERSON, "")
_OURS = os.fspath(Path(__file__).parents[3])
_owners: dict[str, Owner] = {}  # of folders; the innermost one around a file decides


@functools.cache
def owned_file(filename: str) -> OwnedFile:
    """The owner of the code in a file, by the path that Python knows or else by the real one."""
    if filename.startswith("<") and not filename.startswith(_TYPED):
        return OwnedFile(Owner.PYTHON, "")
    if not os.path.isabs(filename):  # nothing that was imported
        return _PERSONS
    found = _innermost(os.path.normpath(filename)) or _innermost(os.path.realpath(filename))
    return found or _PERSONS


def is_persons(filename: str) -> bool:
    return owned_file(filename).owner is Owner.PERSON


def is_ours(filename: str) -> bool:
    return owned_file(filename).owner is Owner.LAUNCHSCOPE


def is_torch(filename: str) -> bool:
    return owned_file(filename).owner is Owner.TORCH


def is_torch_part(filename: str, *parts: str) -> bool:
    """Whether a file is one of these files of torch, or below one of these folders of it."""
    owner, path = owned_file(filename)
    return owner is Owner.TORCH and f"{path}{os.sep}".startswith(
        tuple(f"{part}{os.sep}" for part in parts)
    )


def note_torch(torch: Torch) -> None:
    """The script has imported PyTorch, and may take it out of `sys.modules` again."""
    _own(Owner.TORCH, os.path.dirname(torch.__file__), *torch.__path__)


def note_script(path: str) -> None:
    """The script is the person's, wherever it lies, and so is its folder, unless packages are
    installed right there."""
    _own(Owner.PERSON, path)
    for place in (path, os.path.realpath(path)):  # Python imports from beside the second one
        folder = os.path.dirname(place)
        if folder not in _owners and not _is_installed(folder):
            _own(Owner.PERSON, folder)


def _own(owner: Owner, *paths: str) -> None:
    _owners.update((spelled, owner) for path in paths for spelled in _spellings(path))
    owned_file.cache_clear()


def _spellings(path: str) -> tuple[str, str]:
    return os.path.normpath(path), os.path.realpath(path)


def _innermost(path: str) -> OwnedFile | None:
    folder, above = path, os.path.dirname(path)
    while folder != above:
        owner = _owners.get(folder) or (Owner.LIBRARY if _is_installed(folder) else None)
        if owner is not None:
            return OwnedFile(owner, path[len(folder) + 1 :])
        folder, above = above, os.path.dirname(above)
    return None


def _is_installed(folder: str) -> bool:
    return folder in _installed(tuple(sys.path))


@functools.lru_cache(maxsize=8)
def _installed(entries: tuple[str, ...]) -> frozenset[str]:
    """The folders that Python imports packages from which an installer has put there."""
    own = [*site.getsitepackages(), site.getusersitepackages()]
    others = (entry for entry in entries if os.path.isabs(entry) and holds_packages(entry))
    return frozenset(spelled for path in (*own, *others) for spelled in _spellings(path))


_own(Owner.PYTHON, os.path.dirname(os.__file__))
_own(Owner.LAUNCHSCOPE, _OURS)


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
    """The place at which the frame runs. `otherwise` is the person's line for frames without one,
    such as the frames of a backward in a thread of torch."""
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


def names_attribute(frame: FrameType | None, name: str) -> bool:
    """Whether the person's code that runs here, or a function defined in it, has this name."""
    stack = (inner.f_code for inner, _ in traceback.walk_stack(frame))
    codes = [code for code in stack if is_persons(code.co_filename)]
    for code in codes:  # those defined in one are added behind it
        codes += [const for const in code.co_consts if isinstance(const, CodeType)]
    return any(name in code.co_names for code in codes)


def line_of_torch(frame: FrameType | None) -> SourceLine | None:
    """The line in a package of torch, other than autograd, that runs an op; None for ops that other
    code runs."""
    for inner in library_frames(frame):
        owner, path = owned_file(inner.f_code.co_filename)
        if owner is Owner.TORCH and not path.startswith("_"):
            line = SourceLine(short_path(inner.f_code.co_filename), inner.f_lineno or 0)
            return None if path.startswith("autograd") or os.sep not in path else line
    return None


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


def package_of(library: SourceLine) -> str:
    """The installed package or module that the line of a library belongs to."""
    owner, path = owned_file(os.path.join(_START, library.file))
    return "torch" if owner is Owner.TORCH else path.partition(os.sep)[0].removesuffix(".py")


def source_text(where: SourceLine | None) -> str | None:
    """The text of the line; None if it is empty, or the file is gone."""
    if where is None:
        return None
    return linecache.getline(os.path.join(_START, where.file), where.line).strip() or None
