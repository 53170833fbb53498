"""Git repositories for tests: small, and as hostile as their configuration can be."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

_IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")
# Settings that name a program.
_PROGRAMS = (
    "core.fsmonitor", "core.sshCommand", "core.pager", "credential.helper", "filter.lfs.smudge",
    "filter.lfs.process", "filter.lfs.clean", "filter.evil.smudge", "filter.evil.process",
)  # fmt: skip
_HOOKS = ("post-checkout", "post-index-change", "reference-transaction", "pre-commit")


def git(folder: Path, *words: str) -> str:
    """What git prints."""
    done = subprocess.run(
        ["git", *_IDENTITY, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def repository(folder: Path, files: Mapping[str, str]) -> Path:
    """A repository with one commit of these files."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    commit(folder, files)
    return folder


def commit(folder: Path, files: Mapping[str, str]) -> str:
    """The name of a new commit with these files."""
    write(folder, files)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "a commit")
    return git(folder, "rev-parse", "HEAD")


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def make_hostile(folder: Path) -> Path:
    """Every setting and hook runs a program that leaves a mark; returns the file of marks."""
    marks = folder.parent / "marks"
    program = folder.parent / "program"
    program.write_text(f"#!/bin/sh\necho $0 $* >> {marks}\ncat 2>/dev/null\n")
    program.chmod(0o755)
    for setting in _PROGRAMS:
        git(folder, "config", setting, str(program))
    git(folder, "config", "filter.evil.required", "true")
    for hook in _HOOKS:
        path = folder / ".git" / "hooks" / hook
        path.write_text(program.read_text())
        path.chmod(0o755)
    return marks
