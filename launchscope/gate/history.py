"""What git knows about a revision and the files in it. Nothing is written."""

from __future__ import annotations

import os
import subprocess

from launchscope.errors import UsageError


def git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """The result of a git command, whatever its exit code; UsageError if there is no git."""
    try:
        return subprocess.run(
            ["git", *arguments],
            capture_output=True,
            check=False,
            env=os.environ | {"LC_ALL": "C"},  # for its messages
        )
    except OSError as error:
        raise UsageError(
            f"--baseline git:...: git cannot be run: {error.strerror or error}"
        ) from error


def require_revision(reference: str) -> None:
    """UsageError unless git knows this revision, with git's own words where it is no repository."""
    known = git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{reference}^{{commit}}")
    if known.returncode == 0:
        return
    repository = git("rev-parse", "--git-dir")
    if repository.returncode:
        message, _, rest = repository.stderr.decode(errors="replace").strip().partition("\n")
        problem = message.removeprefix("fatal: ")
        raise UsageError(f"--baseline: {problem}", hint=" ".join(rest.split()) or None)
    raise UsageError(
        f"--baseline: git knows no revision {reference!r}",
        hint="a shallow clone may lack it: git fetch origin, or fetch-depth: 0 in the workflow",
    )


def kind_at(reference: str, path: str) -> str | None:
    """ "blob", "tree", or None if the revision has nothing of that name."""
    found = git("cat-file", "-t", f"{reference}:{from_here(path)}")
    return found.stdout.decode().strip() if found.returncode == 0 else None


def from_here(path: str) -> str:
    """The path for git, which takes it from the top of the repository unless it begins with a dot,
    and accepts no absolute one."""
    if os.path.isabs(path):
        path = os.path.relpath(path)
    return path if path.startswith(("./", "../")) else f"./{path}"
