"""Measures a git revision and the current files in turn, on this machine, and compares them."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from launchscope.errors import InputError, MeasureError, ScriptError, UsageError
from launchscope.gate.decide import confirmed
from launchscope.gate.limits import Limits, limits_in_force
from launchscope.gate.paired import CONFIDENCE_PCT, check_pairs, default_timed_limit, disturbance
from launchscope.gate.settings import CheckSettings
from launchscope.git import commit_of, top_level
from launchscope.host import working_directory
from launchscope.model import CheckResult, Disturbance, Mode, PairedRuns, Profile, Target
from launchscope.recorded import recorded
from launchscope.report import with_texts
from launchscope.runner.protocol.folder import SourceTree
from launchscope.wording import duration, listed, listed_first, plural
from launchscope.workflows.base_tree import BaseTree
from launchscope.workflows.profile import ScriptRun, ScriptRunner
from launchscope.workflows.progress import Progress

_OPTION = "--against"
_LIBRARIES = (".so", ".pyd", ".dylib")
_MOST_NAMED = 5
_USAGE_EXIT = 2  # of argparse, click and others, for arguments that they do not know


@dataclass(frozen=True)
class Base:
    """The version to compare with: a commit of the repository whose files begin at `top`. `links`
    are paths below `top` that it gets from the current files."""

    reference: str
    commit: str
    top: Path
    links: tuple[Path, ...]

    @property
    def named(self) -> str:
        return f"{self.reference} ({self.commit[:12]})"


def find_base(own: CheckSettings, target: Target) -> Base:
    """The base version that the settings name. Raises UsageError for a revision that git does not
    know, a script outside of a repository, and a path that cannot be linked."""
    assert own.against is not None
    if target.kind == "script" and target.name == "-":
        raise UsageError(f"{_OPTION} needs a script in a file", hint="save it, and name the file")
    here = Path(os.path.realpath(working_directory()))
    folder = here if target.kind == "module" else _script(target).parent
    top = top_level(_OPTION, folder)
    if top is None:
        raise UsageError(f"{_OPTION}: {folder} is not among the files of a repository")
    if target.kind == "script" and not _script(target).is_relative_to(top):
        raise UsageError(f"{_OPTION}: {target.name} is not among the files of a repository")
    commit = commit_of(own.against, _OPTION, folder)
    links = []
    for text in own.link:
        path = Path(os.path.realpath(here / os.path.dirname(text))) / os.path.basename(text)
        path = Path(os.path.normpath(path))
        if not os.path.lexists(path):
            raise UsageError(f"--link {text}: no such file")
        if not path.is_relative_to(top):
            raise UsageError(
                f"--link {text} lies outside of {top}",
                hint="both versions find it where it is; leave the option out",
            )
        links.append(path)
    return Base(own.against, commit, top, tuple(links))


def check_against(
    base: Base,
    target: Target,
    own: CheckSettings,
    runner: ScriptRunner,
    progress: Progress,
    *,
    flag_limits: Limits,
    workload: str,
    timeout_s: float | None,
) -> CheckResult:
    """Measures both versions and decides. Raises InputError or MeasureError, with exit code 3, if
    one of them cannot be measured, or if the base version would run the current files."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    config = own.limits_for(workload)
    tree = BaseTree(base.top, base.commit, base.named, base.links)
    try:
        runs = _Runs(base, _moved(base, target, tree.path), target, runner, deadline)

        def decide() -> CheckResult:
            limits = list(limits_in_force(flag_limits, config, runs.mode))
            if runs.mode == "gpu" and "iteration_ms" not in {**config, **flag_limits}:
                limits.append(default_timed_limit(own.tolerance))
            return check_pairs(
                runs.pairs,
                runs.summary(own.pairs),
                limits,
                workload=workload,
                strict=own.strict,
                disturbed=runs.disturbed,
                warnings=runs.warnings(),
            )

        runs.first()
        if runs.mode == "rehearsal":
            result = decide()
            while result.outcome == "failed" and len(runs.pairs) < min(own.repeats, own.pairs):
                runs.measure(len(runs.pairs) + 1)
                result = decide()
            return result
        estimate = duration(own.pairs * runs.pair_s)
        progress.message(f"{plural(own.pairs, 'pair')} of runs follow, in about {estimate}")
        runs.measure(own.pairs)
        result = decide()
        if own.confirm and result.outcome == "failed":
            progress.message("measuring again, to confirm")
            runs.clear()
            runs.measure(own.pairs)
            result = confirmed(result, decide(), strict=own.strict)
        return result
    finally:
        tree.remove()


class _TimeUpError(Exception):
    """The time limit was reached during a run, or leaves no room for one."""


@dataclass(frozen=True)
class _Moved:
    """The same command in the base version's tree."""

    root: Path
    target: Target
    folder: str | None  # None: the current one, which is outside of the repository
    environ: dict[str, str]


@dataclass
class _Runs:
    """Runs of both versions, in pairs; the times of `disturbed` ones say nothing."""

    base: Base
    moved: _Moved
    target: Target
    runner: ScriptRunner
    deadline: float | None
    mode: Mode = "gpu"
    pair_s: float = 0.0  # the longest so far
    pairs: list[tuple[Profile, Profile]] = field(default_factory=list)
    discarded: int = 0
    disturbed: list[tuple[Profile, Profile]] = field(default_factory=list)
    _problems: list[Disturbance] = field(default_factory=list)  # of those
    _stamps: dict[str, int] = field(default_factory=dict)  # of files that the current version loads
    _installed: dict[str, None] = field(default_factory=dict)

    def first(self) -> None:
        """Run both versions once. On a GPU that pair does not count: it fills the caches."""
        try:
            before = time.monotonic()
            current = self._current(require_libraries=True)
            pair = self._base(), current
            self.pair_s = time.monotonic() - before
        except _TimeUpError:
            raise self._too_late() from None
        self.mode = current.mode
        if self.mode == "rehearsal":
            self.pairs.append(pair)
        else:
            self.discarded = 1

    def measure(self, wanted: int) -> None:
        """Add pairs until there are as many, or the time is up. A disturbed pair is measured again,
        but not more often than every second one."""
        left = wanted - len(self.pairs) + wanted // 2
        try:
            while len(self.pairs) < wanted and left > 0:
                left -= 1
                before = time.monotonic()
                if self.deadline is not None and before + self.pair_s > self.deadline:
                    break
                # A fair coin for each pair: see gate/interval.py.
                if random.random() < 0.5:
                    current = self._current()
                    pair = self._base(), current
                else:
                    pair = self._base(), self._current()
                self.pair_s = max(self.pair_s, time.monotonic() - before)
                problem = disturbance(*pair)
                if problem is None:
                    self.pairs.append(pair)
                else:
                    self.disturbed.append(pair)
                    self._problems.append(problem)
        except _TimeUpError:
            pass
        if not self.pairs and not self.disturbed:
            raise self._too_late()

    def clear(self) -> None:
        """Forget all pairs so far."""
        for kept in (self.pairs, self.disturbed, self._problems):
            kept.clear()

    def summary(self, planned: int) -> PairedRuns:
        return PairedRuns(
            self.base.reference,
            self.base.commit,
            len(self.pairs),
            planned,
            self.discarded,
            CONFIDENCE_PCT,
            tuple(self._problems),
            tuple((old.facts.sm_clock_mhz, new.facts.sm_clock_mhz) for old, new in self.pairs),
        )

    def warnings(self) -> list[str]:
        found = []
        if commit_of("HEAD", _OPTION, self.base.top) == self.base.commit:
            found.append(
                f"{self.base.reference} is the commit that is checked out: only changes that are "
                "not committed are compared"
            )
        if self._installed:
            found.append(
                f"both versions load {listed(list(self._installed))} from an installation and not "
                "from the repository, so changes there are not compared"
            )
        return found

    def _current(self, *, require_libraries: bool = False) -> Profile:
        run = self._run(self.target, "", SourceTree(os.fspath(self.base.top)), None, {})
        profile = run.whole()
        if require_libraries:
            self._require_libraries(run)
        self._require_unchanged(_files(run))
        return profile

    def _base(self) -> Profile:
        moved, named = self.moved, self.base.named
        tree = SourceTree(os.fspath(self.base.top), os.fspath(moved.root))
        run = self._run(moved.target, "-base", tree, moved.folder, moved.environ)
        problem = run.problem
        if problem is not None:
            why = str(problem)
            if isinstance(problem, ScriptError) and problem.exit_code == _USAGE_EXIT:
                why = f"{why}, as programs do for arguments that they do not know"
            raise MeasureError(
                f"the version at {named} cannot be measured: {why}",
                hint="compare with a revision that takes the same arguments; --link PATH gives it "
                "files that are not in git",
            )
        shared = [file for file in _files(run) if not self._is_linked(file)]
        if shared:
            raise MeasureError(
                f"the version at {named} loaded {_named(self.base.top, shared)} of the current "
                "files, so the comparison would be of the current version with itself",
                hint="install the package from a folder outside of the repository, or not at all",
            )
        assert run.profile is not None
        environment = replace(run.profile.environment, git=self.base.commit[:12])
        made = replace(run.profile, target=recorded(self.target), environment=environment)
        return with_texts(made, self._in_current_tree)

    def _run(
        self, target: Target, label: str, tree: SourceTree, folder: str | None,
        environ: dict[str, str],
    ) -> ScriptRun:  # fmt: skip
        left = None if self.deadline is None else self.deadline - time.monotonic()
        if left is not None and left <= 0:
            raise _TimeUpError
        run = self.runner.run(
            target, label=label, tree=tree, folder=folder, environ=environ, timeout_s=left
        )
        if run.interrupted:
            run.whole()
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise _TimeUpError
        for loaded in run.loaded:
            self._installed.update(dict.fromkeys(loaded.installed))
        return run

    def _require_libraries(self, run: ScriptRun) -> None:
        """InputError for extension modules that were built in the tree and are in no commit."""
        missing = [
            file
            for file in _files(run)
            if Path(file).suffix in _LIBRARIES
            and not (self.moved.root / os.path.relpath(file, self.base.top)).exists()
        ]
        if missing:
            raise InputError(
                f"{_named(self.base.top, missing)} was built in the tree and is not in git, so the "
                f"version at {self.base.named} lacks it",
                hint="--link PATH gives it the current one, if its sources have not changed",
            )

    def _require_unchanged(self, files: Sequence[str]) -> None:
        """MeasureError for a file that somebody has edited since an earlier run loaded it."""
        now = {file: os.stat(file).st_mtime_ns for file in files if os.path.exists(file)}
        known = self._stamps
        edited = [file for file, stamp in now.items() if known.setdefault(file, stamp) != stamp]
        if edited:
            raise MeasureError(
                f"{_named(self.base.top, edited)} changed between two runs",
                hint="start again, and leave the files as they are until the end",
            )

    def _is_linked(self, file: str) -> bool:
        return any(Path(file).is_relative_to(os.path.realpath(link)) for link in self.base.links)

    def _in_current_tree(self, text: str) -> str:
        """Absolute paths in the base version's tree as the current version's reports name them."""
        below = f"{self.moved.root}{os.sep}"
        if not text.startswith(below):
            return text
        here = os.path.realpath(working_directory())
        path = os.path.join(self.base.top, text.removeprefix(below))
        shorter = os.path.relpath(path, here)
        return path if shorter.startswith("..") else shorter

    def _too_late(self) -> MeasureError:
        pair = f"; a pair takes about {duration(self.pair_s)}" if self.pair_s else ""
        return MeasureError(
            "the time limit was reached before a pair of runs was measured",
            hint=f"raise --timeout, which bounds all runs together{pair}",
        )


def _moved(base: Base, target: Target, root: Path) -> _Moved:
    """Raises InputError if the base version does not have the script."""
    here = Path(os.path.realpath(working_directory()))
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
        is_same = folder is not None and os.path.normpath(folder / target.name) == str(
            root / script
        )
        if os.path.isabs(target.name) or not is_same:
            target = replace(target, name=os.fspath(root / script))
    environ = {"TORCH_EXTENSIONS_DIR": os.fspath(root.parent / "torch_extensions")}
    if "PYTHONPATH" in os.environ:
        # For processes that the script starts; in its own, sys.path is adapted.
        entries = os.environ["PYTHONPATH"].split(os.pathsep)
        environ["PYTHONPATH"] = os.pathsep.join(
            _there(entry, base.top, root) or entry for entry in entries
        )
    return _Moved(root, target, None if folder is None else os.fspath(folder), environ)


def _there(path: str, top: Path, root: Path) -> str | None:
    """The same folder in the base version's tree, if that has it."""
    real = Path(os.path.realpath(path))
    place = root / real.relative_to(top) if real.is_relative_to(top) else None
    return os.fspath(place) if place is not None and place.is_dir() else None


def _script(target: Target) -> Path:
    """Its absolute path, in the folder that it really lies in; it may be a link itself."""
    path = os.path.join(working_directory(), target.name)
    return Path(os.path.realpath(os.path.dirname(path))) / os.path.basename(path)


def _files(run: ScriptRun) -> list[str]:
    """The files of the current tree that a run has loaded, each once."""
    return list(dict.fromkeys(file for loaded in run.loaded for file in loaded.files))


def _named(top: Path, files: Sequence[str]) -> str:
    return listed_first([os.path.relpath(file, top) for file in files], _MOST_NAMED)
