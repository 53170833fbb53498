"""Baselines: where they are, their names, and what they keep of a Profile.

A baseline is a Profile without samples, findings and verdict, sorted, so that a small change of
the code changes few lines of the file. A folder has one per workload and device.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from launchscope.errors import InputError, UsageError
from launchscope.gate.history import from_here, git, kind_at, require_revision
from launchscope.gate.measurement import processes_of, range_of, sound
from launchscope.host import write_whole
from launchscope.model import Facts, KernelRow, Metric, Profile, Replay, SourceLine
from launchscope.parser import parse_profile, read_profile

_GIT = "git:"
_SUFFIX = ".json"
_NOWHERE = SourceLine("", 0)  # sorts first


@dataclass(frozen=True)
class Baseline:
    """A baseline that was found, and where."""

    profile: Profile
    place: str


@dataclass(frozen=True)
class BaselinePlace:
    """Where `--baseline` points: a file, a folder of files, or either of a git revision."""

    path: str
    reference: str | None = None  # of git

    def __str__(self) -> str:
        return f"{_GIT}{self.reference}:{self.path}" if self.reference else self.path

    @property
    def is_folder(self) -> bool:
        """Whether it has one file per workload and device. A path that does not exist yet is a
        folder unless it is named like a file."""
        if self.reference is not None:
            return kind_at(self.reference, self.path) == "tree"
        path = Path(self.path)
        return path.is_dir() or (not path.exists() and path.suffix != _SUFFIX)

    def find(self, workload: str, profile: Profile) -> Baseline | None:
        """The baseline of this workload on this device; None if there is none yet.

        Raises InputError for one that cannot be read.
        """
        name = file_name(workload, profile)
        if self.reference is not None:
            return self._find_in_git(name)
        with _reachable(self.path):
            path = self._file(name)
            return Baseline(_read(path), str(path)) if path.exists() else None

    def _file(self, name: str) -> Path:
        return Path(self.path) / name if self.is_folder else Path(self.path)

    def _find_in_git(self, name: str) -> Baseline | None:
        assert self.reference is not None
        kind = kind_at(self.reference, self.path)
        if kind is None:
            return None
        path = f"{self.path.rstrip('/')}/{name}" if kind == "tree" else self.path
        if kind == "tree" and kind_at(self.reference, path) is None:
            return None
        shown = git("show", f"{self.reference}:{from_here(path)}")
        place = f"{_GIT}{self.reference}:{path}"
        return Baseline(sound(parse_profile(shown.stdout, place), place), place)

    def others(self, workload: str) -> tuple[str, ...]:
        """File names of the folder that hold the same workload on other devices."""
        folder = Path(self.path)
        if self.reference is not None or not folder.is_dir():
            return ()
        start = f"{_slug(workload)}."
        return tuple(sorted(p.name for p in folder.glob(f"*{_SUFFIX}") if p.name.startswith(start)))

    def holds(self, path: Path) -> bool:
        """Whether a baseline lies, or may come to lie, at this path."""
        if self.reference is not None:
            return False
        own, other = os.path.realpath(self.path), os.path.realpath(path)
        with _reachable(self.path):
            folder = self.is_folder
        return (
            (path.suffix == _SUFFIX and os.path.dirname(other) == own) if folder else other == own
        )

    def require_readable(self) -> None:
        """InputError for a file that is there and is no baseline; of folders it says nothing."""
        path = Path(self.path)
        with _reachable(self.path):
            if self.reference is None and path.is_file():
                _read(path)

    def require_writable(self) -> None:
        """UsageError for a place in git's history, or where nothing may be written."""
        if self.reference is not None:
            raise UsageError(
                f"{self} cannot be written: it lies in git's history",
                hint="name a file or a folder with --baseline, and commit it",
            )
        with _reachable(self.path):
            path = _behind_links(Path(self.path))
            folder = path if self.is_folder else path.parent
            there = next((f for f in (folder, *folder.parents) if f.exists()), folder)
            if there.is_dir() and not os.access(there, os.W_OK | os.X_OK):
                raise _unwritable(self.path, os.strerror(errno.EACCES))

    def write(self, workload: str, profile: Profile) -> Path:
        """Write the baseline, all of it or nothing, and say where.

        Raises InputError if something other than a Profile lies there, UsageError if the place
        cannot be written.
        """
        self.require_writable()
        with _reachable(self.path):
            path = self._file(file_name(workload, profile))
            if path.exists():
                read_profile(path)  # what is no Profile is somebody's, and stays
            path = _behind_links(path)
        data = _encoded(baseline_of(profile))
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, data)
        except OSError as error:
            raise _unwritable(str(path), error.strerror or str(error)) from error
        return path


def _unwritable(place: str, why: str) -> UsageError:
    return UsageError(
        f"cannot write the baseline {place}: {why}",
        hint="name a place that can be written with --baseline",
    )


def _behind_links(path: Path) -> Path:
    """Where a link leads, so that writing keeps the link; the path itself if it is none."""
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    if target.is_symlink():  # resolve() would say so in another way in every Python
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return target


@contextlib.contextmanager
def _reachable(place: str) -> Iterator[None]:
    """InputError for a place that may not even be looked at."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot look for the baseline {place}: {error.strerror or error}"
        ) from error


def _read(path: Path) -> Profile:
    return sound(read_profile(path), str(path))


def baseline_place(text: str) -> BaselinePlace:
    """Of `PATH`, `DIR` or `git:REF:PATH`; UsageError for a revision that git does not know."""
    if not text.startswith(_GIT):
        return BaselinePlace(text)
    reference, colon, path = text.removeprefix(_GIT).partition(":")
    if not colon or not reference or not path:
        raise UsageError(
            f"--baseline: {text!r} names no file of a git revision",
            hint="write git:REF:PATH, such as git:main:baselines/",
        )
    require_revision(reference)
    return BaselinePlace(path, reference)


def file_name(workload: str, profile: Profile) -> str:
    """`train.nvidia-h200.json`, `train.rehearsal.json`, `train.nvidia-h200-x8.json`."""
    environment = profile.environment
    device = "rehearsal" if profile.mode == "rehearsal" else environment.device or "unknown device"
    ranks = f"-x{environment.world_size}" if environment.world_size > 1 else ""
    return f"{_slug(workload)}.{_slug(device)}{ranks}{_SUFFIX}"


def baseline_of(profile: Profile) -> Profile:
    """What a baseline keeps of a Profile: figures with their ranges, and what a step runs."""
    metrics, ranges = {}, {}
    for key in sorted(profile.metrics):
        metric, found = profile.metrics[key], range_of(profile, key)
        if metric.value is None or found is None:
            continue
        metrics[key] = Metric(_rounded(metric.value), metric.unit, metric.exact)
        if found.low != found.high:
            ranges[key] = _rounded(found.low), _rounded(found.high)
    return replace(
        profile,
        # What would differ although nothing changed.
        environment=replace(profile.environment, recorded_at=None, git=None, platform=None),
        metrics=metrics,
        blockers=tuple(sorted(profile.blockers, key=lambda b: (b.op, b.where or _NOWHERE))),
        replay=Replay(profile.replay.status),
        verdict=None,
        findings=(),
        kernels=tuple(
            KernelRow(k.name, _rounded(k.count), _rounded(k.total_us), k.where)
            for k in sorted(profile.kernels, key=lambda k: k.name)
        ),
        ops=tuple(sorted(profile.ops, key=lambda op: (op.where or _NOWHERE, op.name))),
        notes=(),
        facts=Facts(
            ranges=ranges,
            processes=processes_of(profile),
            blocker_ranges=profile.facts.blocker_ranges,
        ),
    )


def _encoded(baseline: Profile) -> bytes:
    """JSON with sorted keys, one row of a list or metric per line, without default values."""

    def encode(value: object) -> str:
        return msgspec.json.encode(value, order="deterministic").decode()

    lines = []
    for key, value in sorted({**_without_defaults(baseline), "schema": baseline.schema}.items()):
        if value and isinstance(value, list):
            rows = ",\n  ".join(map(encode, value))
            text = f"[\n  {rows}\n ]"
        elif key == "metrics":
            rows = ",\n  ".join(f"{encode(name)}: {encode(row)}" for name, row in value.items())
            text = f"{{\n  {rows}\n }}"
        else:
            text = encode(value)
        lines.append(f" {encode(key)}: {text}")
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _without_defaults(value: Any) -> Any:
    """Dataclasses as dicts without the fields that have their default value."""
    if is_dataclass(value):
        return {
            field.name: _without_defaults(own)
            for field in fields(value)
            if (own := getattr(value, field.name)) != field.default
        }
    if isinstance(value, dict):
        return {key: _without_defaults(own) for key, own in value.items()}
    return [_without_defaults(own) for own in value] if isinstance(value, tuple) else value


def _rounded(value: float) -> float:
    """Six figures: the rest is noise that would only make the file differ."""
    return value if isinstance(value, int) else float(f"{value:.6g}")


def _slug(text: str) -> str:
    return re.sub(r"\W+", "-", text.lower()).strip("-") or "unnamed"
