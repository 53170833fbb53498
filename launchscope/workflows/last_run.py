"""The last run, kept in the cache folder of the person, so that `report` can show it again."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from pathlib import Path

from launchscope.config import NO_CACHE_VARIABLE
from launchscope.errors import InputError
from launchscope.model import Adoption, Comparison, Profile
from launchscope.report import render
from launchscope.workflows.save import write_report


def keep(value: Adoption | Profile | Comparison) -> bool:
    """Keeps it in place of the run before, for this person only. False where that is not possible
    or not wanted: the report itself was shown."""
    if os.environ.get(NO_CACHE_VARIABLE, "0") not in ("", "0"):
        return False
    with contextlib.suppress(OSError, InputError):
        path = _place()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_own(path.parent)
        if path.is_file() or not os.path.lexists(path):  # a pipe could block forever
            write_report(path, render(value, "json"), mode=0o600)
            return True
    return False


def last_run() -> Path:
    """The file of the last run. InputError if there is none, or if it may be somebody else's."""
    path = _place()
    try:
        _require_own(path.parent)
        if path.is_file():
            return path
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise InputError(f"cannot look for {path}: {error.strerror or error}") from None
    raise InputError(
        "no run is kept yet",
        hint="launchscope profile SCRIPT measures one; launchscope report PATH reads a file",
    )


def _require_own(folder: Path) -> None:
    """InputError if somebody else can put a file or a link into it, or can name another folder in
    its place: it may lie where everybody can write. OSError if it cannot be accessed."""
    found = folder.stat()
    owners = {found.st_uid, folder.lstat().st_uid}
    if owners != {os.geteuid()} or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InputError(
            f"no run is kept in {folder}, because others own it or can write to it",
            hint="XDG_CACHE_HOME names the folder that it is in",
        )


def _place() -> Path:
    """As each system has it: a folder of ours where programs keep what they can do without."""
    folder = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(folder):  # such a value is to be ignored
        caches = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
        folder = os.path.expanduser(caches)
    if not os.path.isabs(folder):
        raise InputError("no run is kept, because the home folder is not known")
    return Path(folder, "launchscope", "last.json")
