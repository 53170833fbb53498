"""Asks git about a repository, whose configuration may come from anybody and must run nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from launchscope.errors import UsageError, raised_as

# Each of these settings names a program.
_HARMLESS = (
    "core.fsmonitor=false", "core.hooksPath=/dev/null", "core.untrackedCache=false",
    "core.sshCommand=false", "core.askPass=", "credential.helper=", "diff.external=",
    "safe.bareRepository=explicit", "hook.post-checkout.enabled=false",
    "hook.post-index-change.enabled=false", "hook.reference-transaction.enabled=false",
)  # fmt: skip
_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    # What a partial clone lacks is not fetched. Versions that do not know the first find every
    # protocol forbidden, whatever the repository allows.
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    # A path is one file, whatever signs are in its name.
    "GIT_LITERAL_PATHSPECS": "1",
    **dict.fromkeys(("GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS", "GIT_ICASE_PATHSPECS"), "0"),
}
_TIMEOUT_S = 30
# These commands run what the configuration names as a hook or a filter.
_MAY_RUN = ("read-tree", "status", "worktree")
# A hook that runs launchscope has these in its environment: they name its own repository.
# Names a file that `git config` reads in place of the repository's settings, and no other command.
_MISLEADING = "GIT_CONFIG"
_OF_A_HOOK = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX")


def git(
    *arguments: str, folder: Path | None = None, stdin: bytes = b"", timeout_s: float = _TIMEOUT_S
) -> subprocess.CompletedProcess[bytes]:
    """The result of a git command, whatever its exit code; OSError if git cannot run or hangs. It
    is about the repository of `folder`; without one, of the working directory. Not for commands
    that show a file: those run filters and converters."""
    options = [word for setting in _HARMLESS for word in ("-c", setting)]
    environment = {**os.environ, **_ENVIRONMENT}
    environment.pop(_MISLEADING, None)
    if arguments[0] in _MAY_RUN:
        environment |= _switched_off(folder)
    if folder is not None:
        options = ["-C", os.fspath(folder), *options]
        environment = {n: value for n, value in environment.items() if n not in _OF_A_HOOK}
    try:
        return subprocess.run(
            ["git", "--no-pager", *options, *arguments],
            capture_output=True,
            check=False,
            env=environment,
            input=stdin,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"git {arguments[0]} took longer than {timeout_s:g} s") from error


def describe_head() -> str | None:
    """The commit of the working directory, with a mark if files differ from it; None: no git. Of a
    submodule only another commit is seen: its own configuration would apply inside."""
    try:
        head = git("describe", "--always", "--abbrev=12")
        if head.returncode:
            return None
        changed = git(
            *("status", "--porcelain", "--untracked-files=no", "--no-renames"),
            "--ignore-submodules=dirty",
        )
        name = head.stdout.decode().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return None if changed.returncode else f"{name}-dirty" if changed.stdout else name or None


def _switched_off(folder: Path | None) -> dict[str, str]:
    """Environment variables that switch all filters off, which git runs to compare a file, and all
    hooks of the configuration. An option `-c` cannot: a name may have an equals sign."""
    listing = ("config", "--null", "--name-only", "--get-regexp", r"^(filter|hook)\.")
    keys = os.fsdecode(git(*listing, folder=folder).stdout).split("\0")
    names = {key.rpartition(".")[0] for key in keys if key}
    given = os.environ.get("GIT_CONFIG_COUNT", "")
    start = int(given) if given.isdecimal() else 0
    parts = {"clean": "", "process": "", "required": "false", "enabled": "false"}
    settings = [(f"{name}.{part}", value) for name in names for part, value in parts.items()]
    made = {"GIT_CONFIG_COUNT": str(start + len(settings))}
    for number, (key, value) in enumerate(settings, start):
        made |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return made


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
    elif _resolved(f"origin/{reference}", option, folder) is not None:
        hint = f"did you mean origin/{reference}?"
    raise UsageError(f"{option}: git knows no revision {reference!r}", hint=hint)


def _resolved(reference: str, option: str, folder: Path | None) -> str | None:
    name = reference
    if "\0" in name:  # which no program can be given
        return None
    # The second time it is a full name: "^{commit}" would be a part of some references, such as
    # ":/a message", and one that excludes commits, such as "^main", gives another text.
    for suffix in ("", "^{commit}"):
        words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}{suffix}")
        found = _asked(*words, option=option, folder=folder)
        if found.returncode:
            return None
        name = found.stdout.decode("ascii").split()[-1]
        if not name.isalnum():
            return None
    return name


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
