"""The last run, kept in the cache folder of the person, so that `report` can show it again."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from launchscope.errors import InputError
from launchscope.model import Adoption, Comparison, Profile
from launchscope.report import render
from launchscope.workflows.save import write_report

# With 1, no run is kept.
NO_CACHE_VARIABLE = "LAUNCHSCOPE_NO_CACHE"


def keep(value: Adoption | Profile | Comparison) -> bool:
    """Keeps it in place of the run before, for this person only. False where that is not possible
    or not wanted: the report itself was shown."""
    if os.environ.get(NO_CACHE_VARIABLE, "0") not in ("", "0"):
        return False
    with contextlib.suppress(OSError):
        path = _place()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_report(path, render(value, "json"), mode=0o600)
        return True
    return False


def last_run() -> Path:
    """The file of the last run. InputError if there is none."""
    path = _place()
    with contextlib.suppress(OSError):
        if path.is_file():
            return path
    raise InputError(
        "no run is kept yet",
        hint="launchscope profile SCRIPT measures one; launchscope report PATH reads a file",
    )


def _place() -> Path:
    """As each system has it: a folder of ours where programs keep what they can do without."""
    folder = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(folder):  # such a value is to be ignored
        caches = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"
        folder = os.path.expanduser(caches)
    return Path(folder, "launchscope", "last.json")
