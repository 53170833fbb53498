"""Measures a git revision in place of the current files."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from launchscope.errors import InputError, MeasureError, UsageError, raised_as
from launchscope.git import commit_of, git, top_level
from launchscope.host import working_directory
from launchscope.model import Target
from launchscope.recorded import recorded
from launchscope.report import with_texts
from launchscope.runner.protocol.folder import SourceTree
from launchscope.wording import listed, listed_first
from launchscope.workflows.profile import ScriptRun, ScriptRunner

_OPTION = "--against"
_MOST_NAMED = 5
_CHECKOUT_S = 600  # of a large repository


@dataclass(frozen=True)
class Base:
    """The version to compare with: a commit of the repository whose files begin at `top`."""

    reference: str
    commit: str
    top: Path

    @property
    def named(self) -> str:
        return f"{self.reference} ({self.commit[:12]})"


def find_base(reference: str, target: Target) -> Base:
    """The base version at a revision. Raises UsageError for a revision that git does not
    know, and a script outside of a repository; InputError for a version without the script."""
    folder = _here() if target.kind == "module" else _script(target).parent
    top = top_level(_OPTION, folder)
    if top is None:
        raise UsageError(f"{_OPTION}: {folder} is not among the files of a repository")
    base = Base(reference, commit_of(reference, _OPTION, folder), top)
    if target.kind == "script":
        script = _script(target).relative_to(top)
        with raised_as(InputError, "git cannot be run"):
            found = git("cat-file", "-e", f"{base.commit}:{script}", folder=top)
        if found.returncode:
            raise InputError(
                f"{base.named} has no {script}",
                hint="compare with a revision that has it, or with a stored baseline: --baseline",
            )
    return base


def base_version(base: Base, target: Target, runner: ScriptRunner) -> ScriptRun:
    """The run of the base version, with a Profile whose paths are those of the current files.
    Raises InputError or MeasureError if it cannot be measured, or would run the current files."""
    with base_tree(base.top, base.commit, base.named) as root:
        moved, folder = _moved(base, target, root)
        tree = SourceTree(os.fspath(base.top), os.fspath(root))
        run = runner.run(moved, label="-base", tree=tree, folder=folder)
    if run.interrupted:
        run.whole()
    if run.problem is not None:
        raise MeasureError(
            f"the version at {base.named} cannot be measured: {run.problem}",
            hint="compare with a revision that takes the same arguments; a file that is not in "
            "git needs an absolute path",
        )
    shared = dict.fromkeys(file for loaded in run.loaded for file in loaded.files)
    if shared:
        files = [os.path.relpath(file, base.top) for file in shared]
        raise MeasureError(
            f"the version at {base.named} loaded {listed_first(files, _MOST_NAMED)} of the current "
            "files, so the comparison would be of the current version with itself",
            hint="install the package from a folder outside of the repository, or not at all",
        )
    assert run.profile is not None
    environment = dataclasses.replace(run.profile.environment, git=base.commit[:12])
    profile = replace(run.profile, target=recorded(target), environment=environment)
    return replace(run, profile=with_texts(profile, partial(_in_current_tree, base, root)))


def installed_warning(runs: Iterable[ScriptRun]) -> list[str]:
    """What both versions share, in a sentence; empty without it."""
    found = [name for run in runs for loaded in run.loaded for name in loaded.installed]
    if not found:
        return []
    return [
        f"both versions load {listed(list(dict.fromkeys(found)))} from an installation and not "
        "from the repository, so changes there are not compared"
    ]


def _moved(base: Base, target: Target, root: Path) -> tuple[Target, str | None]:
    """The same command in the base version's tree, and its folder (None: the current one, which is
    outside of the repository)."""
    here = _here()
    folder = root / here.relative_to(base.top) if here.is_relative_to(base.top) else None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    if target.kind == "script" and (folder is None or os.path.isabs(target.name)):
        script = _script(target).relative_to(base.top)
        target = dataclasses.replace(target, name=os.fspath(root / script))
    return target, None if folder is None else os.fspath(folder)


def _in_current_tree(base: Base, root: Path, text: str) -> str:
    """Absolute paths in the base version's tree as the current version's reports name them."""
    below = f"{root}{os.sep}"
    if not text.startswith(below):
        return text
    path = os.path.join(base.top, text.removeprefix(below))
    shorter = os.path.relpath(path, _here())
    return path if shorter.startswith("..") else shorter


def _here() -> Path:
    return Path(os.path.realpath(working_directory()))


def _script(target: Target) -> Path:
    """Its absolute path, in the folder that the file really lies in; it may be a link itself."""
    folder, name = os.path.split(os.path.join(working_directory(), target.name))
    return Path(os.path.normpath(os.path.join(os.path.realpath(folder), name)))


# ----------------------------------------------------------------------------- its files


@contextlib.contextmanager
def base_tree(top: Path, commit: str, named: str) -> Iterator[Path]:
    """A git worktree of the commit in a temporary folder, with the name of the repository's folder,
    until the end of the block. No hook and no filter of the repository runs; what is not in git
    (data, submodules, files of Git LFS) is not there. InputError if git cannot make it; messages
    call the commit `named`."""
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
