"""Whose code a file holds. Where torch, Python and the installed packages of this process lie
decides, not what a folder is called."""

from __future__ import annotations

import enum
import functools
import os
import site
import sys
from pathlib import Path
from typing import NamedTuple

from launchscope.host import holds_packages
from launchscope.runner.child.facts.torch_types import Torch


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
