"""Asks git about the repository of the script."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from launchscope.errors import UsageError, raised_as

_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    # What a partial clone lacks is not fetched, also by versions that know only the second.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_LITERAL_PATHSPECS": "1",  # a path is one file, whatever signs are in its name
}
_TIMEOUT_S = 30
# A hook that runs launchscope has these in its environment: they name its own repository.
_OF_A_HOOK = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX")


def git(
    *arguments: str, folder: Path | None = None, timeout_s: float = _TIMEOUT_S
) -> subprocess.CompletedProcess[bytes]:
    """The result of a git command, whatever its exit code; OSError if git cannot run or hangs. It
    is about the repository of `folder`; without one, of the working directory. No hooks run."""
    options = ["--no-pager", "-c", f"core.hooksPath={os.devnull}"]
    environment = {**os.environ, **_ENVIRONMENT}
    if folder is not None:
        options = ["-C", os.fspath(folder), *options]
        environment = {n: value for n, value in environment.items() if n not in _OF_A_HOOK}
    try:
        return subprocess.run(
            ["git", *options, *arguments],
            capture_output=True,
            check=False,
            env=environment,
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"git {arguments[0]} took longer than {timeout_s:g} s") from error


def describe_head() -> str | None:
    """The commit of the working directory, with a mark if files differ from it; None: no git."""
    try:
        head = git("describe", "--always", "--abbrev=12")
        if head.returncode:
            return None
        changed = git("status", "--porcelain", "--untracked-files=no", "--no-renames")
        name = head.stdout.decode().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return None if changed.returncode else f"{name}-dirty" if changed.stdout else name or None


def commit_of(reference: str, option: str, folder: Path | None = None) -> str:
    """The full name of the commit that a revision, given with `option`, stands for.
    UsageError if git knows none; outside of a repository with git's message."""
    found = _resolved(reference, option, folder)
    if found is not None:
        return found
    top_level(option, folder)
    hint = "fetch it first: git fetch origin"
    shallow = _asked("rev-parse", "--is-shallow-repository", option=option, folder=folder)
    if shallow.stdout.strip() == b"true":
        hint = "this clone is shallow: git fetch --unshallow, or fetch-depth: 0 in the workflow"
    raise UsageError(f"{option}: git knows no revision {reference!r}", hint=hint)


def _resolved(reference: str, option: str, folder: Path | None) -> str | None:
    if "\0" in reference:  # which no program can be given
        return None
    words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{reference}^{{commit}}")
    found = _asked(*words, option=option, folder=folder)
    name = found.stdout.decode("ascii").strip()
    return name if name.isalnum() else None  # one that excludes commits, such as "^main"


def top_level(option: str, folder: Path | None = None) -> Path | None:
    """The folder of all files of the repository, None for a bare one; UsageError with git's message
    where there is no repository."""
    repository = _asked("rev-parse", "--git-dir", option=option, folder=folder)
    if repository.returncode:
        message, _, rest = repository.stderr.decode(errors="replace").strip().partition("\n")
        problem = message.removeprefix("fatal: ")
        raise UsageError(f"{option}: {problem}", hint=" ".join(rest.split()) or None)
    found = _asked("rev-parse", "--show-toplevel", option=option, folder=folder)
    return Path(os.fsdecode(found.stdout[:-1])) if found.returncode == 0 else None


def _asked(*arguments: str, option: str, folder: Path | None) -> subprocess.CompletedProcess[bytes]:
    with raised_as(UsageError, f"{option}: git cannot be run"):
        return git(*arguments, folder=folder)
