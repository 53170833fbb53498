"""The files of a commit in a git worktree of their own, in a temporary folder.

No hook and no filter of the repository runs. What is not in git (data, submodules, files of Git
LFS) is not there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from launchscope.errors import InputError, MeasureError, UsageError, raised_as
from launchscope.git import git

_CHECKOUT_S = 600  # of a large repository


@contextlib.contextmanager
def base_tree(top: Path, commit: str, named: str) -> Iterator[Path]:
    """The worktree, which has the name of the repository's folder, until the end of the block.
    InputError if git cannot make the worktree of the commit, which messages call `named`."""
    hint = "set TMPDIR to a writable folder with room, outside of the repository"
    with raised_as(MeasureError, "cannot make a folder for the base version", hint=hint):
        folder = TemporaryDirectory(prefix="launchscope-", ignore_cleanup_errors=True)
    path = Path(os.path.realpath(folder.name)) / top.name
    try:
        if path.is_relative_to(top):
            raise UsageError(
                f"temporary files would lie in the repository, in {path.parent.parent}", hint=hint
            )
        _check_out(top, commit, named, path)
        yield path
    finally:
        folder.cleanup()
        with contextlib.suppress(OSError):
            git("worktree", "remove", "--force", os.fspath(path), folder=top)


def _check_out(top: Path, commit: str, named: str, path: Path) -> None:
    words = ("worktree", "add", "--quiet", "--detach", os.fspath(path), commit)
    with raised_as(InputError, "git cannot be run"):
        done = git(*words, folder=top, timeout_s=_CHECKOUT_S)
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise InputError(
            f"git cannot check out {named}: {''.join(why).removeprefix('fatal: ')}",
            hint="if this clone is not complete: git fetch origin, without --depth and --filter",
        )
