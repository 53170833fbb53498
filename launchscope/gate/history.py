"""What git knows of a revision: whether it is there, what lies in it. Nothing is written."""

from __future__ import annotations

import os
import subprocess

from launchscope.errors import UsageError

__all__ = ["from_here", "git", "kind_at", "no_repository"]


def git(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    """What git did, whatever its exit code; UsageError where there is no git."""
    try:
        return subprocess.run(
            ["git", *arguments],
            capture_output=True,
            check=False,
            env=os.environ | {"LC_ALL": "C"},  # its messages are looked into
        )
    except OSError as error:
        raise UsageError(
            f"--baseline git:...: git cannot be run: {error.strerror or error}"
        ) from error


def no_repository(text: str, said: str) -> UsageError:
    """What keeps git from reading the repository: that there is none, or the reason it gives."""
    if "not a git repository" in said:
        return UsageError(f"--baseline: {text}: this folder is in no git repository")
    reason = said.strip().partition("\n")[0].removeprefix("fatal: ")
    return UsageError(
        f"--baseline: {text}: git cannot read the repository: {reason}",
        hint="git config --global --add safe.directory PATH trusts a folder of another owner"
        if "ownership" in reason
        else None,
    )


def kind_at(reference: str, path: str) -> str | None:
    """ "blob", "tree", or None if the revision has nothing of that name."""
    found = git("cat-file", "-t", f"{reference}:{from_here(path)}")
    return found.stdout.decode().strip() if found.returncode == 0 else None


def from_here(path: str) -> str:
    """git takes paths from the top of the repository unless they begin with a dot, and never
    absolute ones."""
    if os.path.isabs(path):
        path = os.path.relpath(path)
    return path if path.startswith(("./", "../")) else f"./{path}"
