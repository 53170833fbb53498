"""Puts a verified patch into the person's files, and says how to take it back."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from launchscope.adopt.patch import Patch
from launchscope.errors import UsageError, raised_as
from launchscope.git import git
from launchscope.host import require_room_beside, write_whole
from launchscope.workflows.save import shown_path

_BACKUP = ".before-graph"


def require_applicable(patch: Patch) -> None:
    """UsageError where `write_patch` cannot replace the file: before anything else runs."""
    with raised_as(UsageError, f"--write: cannot write {os.path.relpath(patch.file)}"):
        require_room_beside(patch.file)


def write_patch(patch: Patch) -> str:
    """Change the file; the result is the command that takes that back. Raises UsageError for a file
    that is not what was verified anymore."""
    require_unchanged(patch)
    with raised_as(UsageError, f"cannot write {patch.file}"):
        undo = _undo(patch)
        write_whole(patch.file, patch.after)
    return undo


def require_unchanged(patch: Patch) -> None:
    with raised_as(UsageError, f"cannot read {patch.file}"):
        now = patch.file.read_bytes()
    if now != patch.before:
        raise UsageError(
            f"{os.path.relpath(patch.file)} changed while the patch was checked",
            hint="run the same command again",
        )


def top_of(file: Path) -> Path:
    """The folder to which the paths of a patch are relative: the top of the repository or, without
    one, the working directory."""
    try:
        found = git("rev-parse", "--show-toplevel", folder=file.parent)
    except OSError:
        return Path.cwd()
    if found.returncode:
        here = Path.cwd()
        return here if file.is_relative_to(here) else file.parent
    return Path(os.fsdecode(found.stdout[:-1]))


def _undo(patch: Patch) -> str:
    """Keeps the file beside itself; the command that puts it back."""
    backup = patch.file.with_name(patch.file.name + _BACKUP)
    if backup.exists() and backup.read_bytes() != patch.before:
        raise UsageError(
            f"--write: {os.path.relpath(backup)} already exists", hint="move it away first"
        )
    mode = stat.S_IMODE(patch.file.stat().st_mode)  # to keep it private, and to get it back
    write_whole(backup, patch.before, mode=mode & 0o600)
    backup.chmod(mode)
    before, now = (shown_path(Path(os.path.relpath(path))) for path in (backup, patch.file))
    return f"mv {before} {now}"
