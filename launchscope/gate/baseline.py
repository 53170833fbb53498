"""Baselines: a Profile without samples, findings and verdict, sorted, so that a small change of the
code changes few lines of the file. A folder has one per workload and device."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from launchscope.errors import InputError, UsageError, raised_as
from launchscope.frozen import dataclass
from launchscope.gate.measurement import range_of, sound
from launchscope.gate.metrics import is_count
from launchscope.git import commit_of, content_at, kind_at
from launchscope.host import write_whole
from launchscope.model import (
    BetweenSteps,
    Blocker,
    Facts,
    KernelRow,
    Metric,
    OpRow,
    Profile,
    Replay,
    SourceLine,
)
from launchscope.parser import parse_saved, read_profile
from launchscope.visible import inert_json

_GIT = "git:"
_SUFFIX = ".json"
State = Mapping[str, tuple[int, ...]]  # of files, by path
_NOWHERE = SourceLine("", 0)  # sorts first


@dataclass(frozen=True)
class Baseline:
    """A baseline that was found, and where."""

    profile: Profile
    place: str


# The place may be one that cannot be accessed.
_REACHABLE = raised_as(InputError, "cannot look for the baseline", names_file=True)


@dataclass(frozen=True)
class BaselinePlace:
    """Where `--baseline` points: a file, a folder of files, or either of a git revision."""

    path: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"{_GIT}{self.revision}:{self.path}" if self.revision else self.path

    @property
    def is_folder(self) -> bool:
        """Whether it has one file per workload and device. A path that does not exist yet is a
        folder unless it is named like a file."""
        if self.revision is not None:
            return kind_at(self.revision, self.path) == "tree"
        path = Path(self.path)
        return path.is_dir() or (not path.exists() and path.suffix != _SUFFIX)

    def _file(self, workload: str, profile: Profile) -> str:
        if not self.is_folder:
            return self.path
        return os.path.join(self.path, file_name(workload, profile))

    @_REACHABLE
    def find(self, workload: str, profile: Profile) -> Baseline | None:
        """The baseline of this workload on this device; None if there is none yet, InputError if it
        cannot be read."""
        path = self._file(workload, profile)
        if self.revision is None:
            return Baseline(_read(path), path) if Path(path).exists() else None
        if kind_at(self.revision, path) is None:
            return None
        place = f"{_GIT}{self.revision}:{path}"
        found = parse_saved(content_at(self.revision, path), place, Profile)
        return Baseline(sound(found, place), place)

    def others(self, workload: str) -> tuple[str, ...]:
        """File names of the folder that hold the same workload on other devices."""
        folder = Path(self.path)
        if self.revision is not None or not folder.is_dir():
            return ()
        names = sorted(path.name for path in folder.glob(f"*{_SUFFIX}"))
        return tuple(name for name in names if name.rsplit(".", 2)[0] == _stem(workload))

    @_REACHABLE
    def holds(self, path: Path) -> bool:
        """Whether there is a baseline at this path, or may be one later."""
        if self.revision is not None:
            return False
        own, other = os.path.realpath(self.path), os.path.realpath(path)
        if self.is_folder:
            return path.suffix == _SUFFIX and os.path.dirname(other) == own
        return other == own

    @_REACHABLE
    def require_readable(self) -> None:
        """InputError for an existing file that is not a baseline; folders are not checked."""
        if self.revision is None and not self.is_folder and Path(self.path).exists():
            _read(self.path)

    @_REACHABLE
    def require_writable(self) -> None:
        """UsageError for a place in git's history, or where nothing may be written."""
        if self.revision is not None:
            raise UsageError(
                f"{self} cannot be written: it lies in git's history",
                hint="name a file or a folder with --baseline, and commit it",
            )
        path = Path(os.path.realpath(self.path))
        if path.is_symlink():  # to itself, in the end
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), self.path)
        folder = path if self.is_folder else path.parent
        existing = next((f for f in (folder, *folder.parents) if f.exists()), folder)
        if existing.is_dir() and not os.access(existing, os.W_OK | os.X_OK):
            raise _unwritable(self.path, os.strerror(errno.EACCES))

    @_REACHABLE
    def state(self) -> State:
        """The files of this place as they are now."""
        folder = Path(self.path)
        files = folder.glob(f"*{_SUFFIX}") if self.is_folder else (folder,)
        return {str(file): stamp for file in files if (stamp := _stamp(file)) is not None}

    @_REACHABLE
    def write(self, workload: str, profile: Profile, before: State | None = None) -> str:
        """Writes the baseline, all of it or nothing, and says where. Raises InputError if something
        other than a Profile lies there, or if the file is not as `before`; UsageError if the place
        cannot be written."""
        self.require_writable()
        path = self._file(workload, profile)
        target = Path(os.path.realpath(path))  # a link stays a link
        content = _encoded(baseline_of(profile))
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with _locked(target.parent):
                if before is not None and before.get(str(Path(path))) != _stamp(target):
                    raise InputError(
                        f"{path} changed during the measurement, and stays as it is now",
                        hint="only one check at a time can update a baseline: run it again",
                    )
                if target.exists():
                    read_profile(path)  # anything but a Profile belongs to somebody, and stays
                write_whole(target, content)
        except OSError as error:
            raise _unwritable(path, error.strerror or str(error)) from None
        return path


def _stamp(path: Path) -> tuple[int, ...] | None:
    """What changes with every write of a file; None if there is no file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time, where the file system can lock."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _unwritable(place: str, why: str) -> UsageError:
    return UsageError(
        f"cannot write the baseline {place}: {why}",
        hint="name a place that can be written with --baseline",
    )


def _read(path: str) -> Profile:
    return sound(read_profile(path), path)


def baseline_path(text: str) -> tuple[str, str]:
    """`git:REF:` (or nothing), and the path behind it."""
    if not text.startswith(_GIT):
        return "", text
    revision, colon, path = text.removeprefix(_GIT).partition(":")
    return f"{_GIT}{revision}{colon}", path


def baseline_place(text: str) -> BaselinePlace:
    """The place that `PATH`, `DIR` or `git:REF:PATH` names; UsageError for an unknown revision."""
    if not text.strip():
        # An unset variable of a CI workflow; "" would be the working directory.
        raise UsageError("--baseline is empty", hint="it names a file, a folder or git:REF:PATH")
    head, path = baseline_path(text)
    if not head:
        return BaselinePlace(text)
    revision = head.removeprefix(_GIT).removesuffix(":")
    if not revision or not path:
        raise UsageError(
            f"--baseline: {text!r} names no file of a git revision",
            hint="write git:REF:PATH, such as git:main:baselines/",
        )
    commit_of(revision, "--baseline")
    return BaselinePlace(path, revision)


def file_name(workload: str, profile: Profile) -> str:
    """`train.nvidia-h200.json`, `train.rehearsal.json`, `train.nvidia-h200-x8.json`."""
    environment = profile.environment
    device = "rehearsal" if profile.mode == "rehearsal" else environment.device or "unknown device"
    ranks = f"-x{environment.world_size}" if environment.world_size > 1 else ""
    return f"{_stem(workload)}.{_slug(device)}{ranks}{_SUFFIX}"


def baseline_of(profile: Profile) -> Profile:
    """What a baseline keeps of a Profile: figures with their ranges, and what a step runs."""
    metrics, ranges = {}, {}
    for key in sorted(profile.metrics):
        metric, found = profile.metrics[key], range_of(profile, key)
        if metric.value is None or found is None:
            continue
        # A count is compared exactly, also where it is an average of periodic work.
        value = metric.value if is_count(key) else _rounded(metric.value)
        metrics[key] = Metric(value, metric.unit, metric.exact)
        if found.low != found.high:
            ranges[key] = _rounded(found.low), _rounded(found.high)
    return replace(
        profile,
        # What would differ although nothing changed.
        environment=replace(profile.environment, recorded_at=None, git=None, platform=None),
        metrics=metrics,
        blockers=_sorted_blockers(profile.blockers),
        replay=Replay(profile.replay.status),
        verdict=None,
        findings=(),
        kernels=_sorted_kernels(profile.kernels),
        ops=_sorted_ops(profile.ops),
        between=profile.between and _between_of(profile.between),
        work=tuple(sorted(profile.work, key=lambda w: (w.metric, w.name, w.code or ""))),
        timelines=None,
        notes=(),
        histograms=None,
        queue_depth=None,
        streams=None,
        overhead_by_line=None,
        overhead_by_module=None,
        launches_by_operator=None,
        facts=Facts(
            ranges=ranges,
            processes=profile.facts.processes or 1,
            blocker_ranges=profile.facts.blocker_ranges,
        ),
    )


def _between_of(between: BetweenSteps) -> BetweenSteps:
    return replace(
        between,
        ops=_sorted_ops(between.ops),
        blockers=_sorted_blockers(between.blockers),
        kernels=_sorted_kernels(between.kernels),
        periodic=tuple(work for work in between.periodic if work.period),
    )


def _sorted_blockers(rows: tuple[Blocker, ...]) -> tuple[Blocker, ...]:
    return tuple(sorted(rows, key=lambda b: (b.op, b.where or _NOWHERE)))


def _sorted_ops(rows: tuple[OpRow, ...]) -> tuple[OpRow, ...]:
    return tuple(sorted(rows, key=lambda op: (op.where or _NOWHERE, op.name)))


def _sorted_kernels(rows: tuple[KernelRow, ...]) -> tuple[KernelRow, ...]:
    return tuple(
        KernelRow(k.name, _rounded(k.count), _rounded(k.total_us), k.where)
        for k in sorted(rows, key=lambda k: k.name)
    )


def _encoded(baseline: Profile) -> bytes:
    """JSON with sorted keys, one row of a list or metric per line, without default values."""

    def encode(value: object) -> str:
        return msgspec.json.encode(value, order="deterministic").decode()

    lines = []
    for key, value in sorted({**_without_defaults(baseline), "schema": baseline.schema}.items()):
        text = encode(value)
        if value and isinstance(value, list):
            rows = ",\n  ".join(map(encode, value))
            text = f"[\n  {rows}\n ]"
        elif key in ("metrics", "between"):
            rows = ",\n  ".join(f"{encode(name)}: {encode(row)}" for name, row in value.items())
            text = f"{{\n  {rows}\n }}"
        lines.append(f" {encode(key)}: {text}")
    return inert_json(("{\n" + ",\n".join(lines) + "\n}\n").encode())


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


def _stem(workload: str) -> str:
    """The name itself, or, for one with other signs, a name like it that no other has."""
    name = workload.lower()
    stem = re.sub(r"[^\w.-]+", "-", name).strip(".-") or "unnamed"
    if stem == name:
        return stem
    return f"{stem}-{hashlib.sha256(name.encode(errors='surrogateescape')).hexdigest()[:6]}"


def _slug(text: str) -> str:
    return re.sub(r"\W+", "-", text.lower()).strip("-") or "unnamed"
