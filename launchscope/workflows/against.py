"""Measures a git revision and the current files, and compares their counts."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from launchscope.errors import InputError, MeasureError, UsageError
from launchscope.gate.baseline import Baseline
from launchscope.gate.decide import check_profiles
from launchscope.gate.limits import Limits, limits_in_force
from launchscope.gate.settings import CheckSettings
from launchscope.git import commit_of, top_level
from launchscope.host import working_directory
from launchscope.model import CheckResult, Profile, Target
from launchscope.recorded import recorded
from launchscope.report import with_texts
from launchscope.runner.protocol.folder import SourceTree
from launchscope.wording import listed, listed_first
from launchscope.workflows.base_tree import base_tree
from launchscope.workflows.profile import ScriptRun, ScriptRunner

_OPTION = "--against"
_MOST_NAMED = 5


@dataclass(frozen=True)
class Base:
    """The version to compare with: a commit of the repository whose files begin at `top`."""

    reference: str
    commit: str
    top: Path

    @property
    def named(self) -> str:
        return f"{self.reference} ({self.commit[:12]})"


def find_base(own: CheckSettings, target: Target) -> Base:
    """The base version that the settings name. Raises UsageError for a revision that git does not
    know, and a script outside of a repository."""
    assert own.against is not None
    folder = _here() if target.kind == "module" else _script(target).parent
    top = top_level(_OPTION, folder)
    if top is None:
        raise UsageError(f"{_OPTION}: {folder} is not among the files of a repository")
    commit = commit_of(own.against, _OPTION, folder)
    return Base(own.against, commit, top)


def check_against(
    base: Base,
    target: Target,
    own: CheckSettings,
    runner: ScriptRunner,
    *,
    flag_limits: Limits,
    workload: str,
) -> CheckResult:
    """Measures both versions, and the current one again before a limit fails. Raises InputError or
    MeasureError if one of them cannot be measured, or if the base version would run the current
    files."""
    with base_tree(base.top, base.commit, base.named) as root:
        runs = _Runs(base, _moved(base, target, root), target, runner)
        profiles = [runs.current()]
        baseline = Baseline(runs.base_version(), base.named, is_stored=False)
        limits = limits_in_force(flag_limits, own.limits, profiles[0].mode)
        while True:
            result = check_profiles(
                profiles, baseline, limits, workload=workload, strict=own.strict
            )
            if result.outcome != "failed" or len(profiles) >= own.repeats:
                return replace(result, warnings=(*runs.warnings(), *result.warnings))
            profiles.append(runs.current())


@dataclass(frozen=True)
class _Moved:
    """The same command in the base version's tree."""

    root: Path
    target: Target
    folder: str | None  # None: the current one, which is outside of the repository


def _moved(base: Base, target: Target, root: Path) -> _Moved:
    """Raises InputError if the base version does not have the script."""
    here = _here()
    folder = root / here.relative_to(base.top) if here.is_relative_to(base.top) else None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    if target.kind == "script":
        script = _script(target).relative_to(base.top)
        if not (root / script).exists():
            raise InputError(
                f"{base.named} has no {script}",
                hint="compare with a revision that has it, or with a stored baseline: --baseline",
            )
        if folder is None or os.path.isabs(target.name):
            target = dataclasses.replace(target, name=os.fspath(root / script))
    return _Moved(root, target, None if folder is None else os.fspath(folder))


@dataclass
class _Runs:
    """Runs of both versions."""

    base: Base
    moved: _Moved
    target: Target
    runner: ScriptRunner
    _installed: dict[str, None] = field(default_factory=dict)

    def current(self) -> Profile:
        return self._run(self.target, SourceTree(os.fspath(self.base.top))).whole()

    def warnings(self) -> list[str]:
        if not self._installed:
            return []
        names = listed(list(self._installed))
        return [
            f"both versions load {names} from an installation and not from the repository, so "
            "changes there are not compared"
        ]

    def base_version(self) -> Profile:
        moved, named = self.moved, self.base.named
        tree = SourceTree(os.fspath(self.base.top), os.fspath(moved.root))
        run = self._run(moved.target, tree, "-base", moved.folder)
        if run.interrupted:
            run.whole()
        if run.problem is not None:
            raise MeasureError(
                f"the version at {named} cannot be measured: {run.problem}",
                hint="compare with a revision that takes the same arguments; a file that is not in "
                "git needs an absolute path",
            )
        shared = dict.fromkeys(file for loaded in run.loaded for file in loaded.files)
        if shared:
            files = [os.path.relpath(file, self.base.top) for file in shared]
            raise MeasureError(
                f"the version at {named} loaded {listed_first(files, _MOST_NAMED)} of the current "
                "files, so the comparison would be of the current version with itself",
                hint="install the package from a folder outside of the repository, or not at all",
            )
        assert run.profile is not None
        environment = dataclasses.replace(run.profile.environment, git=self.base.commit[:12])
        profile = replace(run.profile, target=recorded(self.target), environment=environment)
        return with_texts(profile, self._in_current_tree)

    def _run(
        self, target: Target, tree: SourceTree, label: str = "", folder: str | None = None
    ) -> ScriptRun:
        run = self.runner.run(target, label=label, tree=tree, folder=folder)
        for loaded in run.loaded:
            self._installed.update(dict.fromkeys(loaded.installed))
        return run

    def _in_current_tree(self, text: str) -> str:
        """Absolute paths in the base version's tree as the current version's reports name them."""
        below = f"{self.moved.root}{os.sep}"
        if not text.startswith(below):
            return text
        path = os.path.join(self.base.top, text.removeprefix(below))
        shorter = os.path.relpath(path, _here())
        return path if shorter.startswith("..") else shorter


def _here() -> Path:
    return Path(os.path.realpath(working_directory()))


def _script(target: Target) -> Path:
    """Its absolute path, in the folder that the file really lies in; it may be a link itself."""
    folder, name = os.path.split(os.path.join(working_directory(), target.name))
    return Path(os.path.normpath(os.path.join(os.path.realpath(folder), name)))
