"""Baselines: a Profile without samples, findings and verdict, sorted, so that a small change of the
code changes few lines of the file. A folder has one per workload and device."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
import re
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from launchscope.errors import InputError, UsageError, raised_as
from launchscope.gate.measurement import range_of
from launchscope.gate.metrics import is_count
from launchscope.host import write_whole
from launchscope.model import (
    Blocker,
    Facts,
    KernelRow,
    Metric,
    OpRow,
    OverheadRow,
    Profile,
    Replay,
    SourceLine,
)
from launchscope.parser import read_profile
from launchscope.visible import inert_json

_SUFFIX = ".json"
_NOWHERE = SourceLine("", 0)  # sorts first
_Row = TypeVar("_Row", OpRow, Blocker)


class Baseline(Struct, frozen=True):
    """A baseline, and where it was found. A base version that was just measured is not stored, and
    cannot be stale."""

    profile: Profile
    place: str
    is_stored: bool = True


# The place may be one that cannot be accessed.
_REACHABLE = raised_as(InputError, "cannot look for the baseline", names_file=True)


class BaselineFolder(Struct, frozen=True):
    """Where `--baseline` points: a folder with one file per workload and device."""

    path: str

    def __str__(self) -> str:
        return self.path

    @_REACHABLE
    def find(self, workload: str, profile: Profile) -> Baseline | None:
        """The baseline of this workload on this device; None if there is none yet, InputError if it
        cannot be read."""
        path = os.path.join(self.path, file_name(workload, profile))
        return Baseline(read_profile(path), path) if Path(path).exists() else None

    def others(self, workload: str) -> tuple[str, ...]:
        """File names that hold the same workload on other devices."""
        names = sorted(path.name for path in Path(self.path).glob(f"*{_SUFFIX}"))
        return tuple(name for name in names if name.rsplit(".", 2)[0] == _stem(workload))

    @_REACHABLE
    def require_writable(self) -> None:
        """UsageError for a place where nothing may be written."""
        folder = Path(os.path.realpath(self.path))
        existing = next((f for f in (folder, *folder.parents) if f.exists()), folder)
        if existing.is_dir() and not os.access(existing, os.W_OK | os.X_OK):
            raise _unwritable(self.path, os.strerror(errno.EACCES))

    @_REACHABLE
    def write(self, workload: str, profile: Profile) -> str:
        """Writes the baseline, all of it or nothing, and says where. InputError if something other
        than a Profile lies there; UsageError if the place cannot be written."""
        self.require_writable()
        path = Path(self.path, file_name(workload, profile))
        if path.exists():
            read_profile(str(path))  # anything but a Profile belongs to somebody, and stays
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, _encoded(baseline_of(profile)))
        except OSError as error:
            raise _unwritable(str(path), error.strerror or str(error)) from None
        return str(path)


def _unwritable(place: str, why: str) -> UsageError:
    return UsageError(
        f"cannot write the baseline {place}: {why}",
        hint="name a folder that can be written with --baseline",
    )


def baseline_folder(path: str) -> BaselineFolder:
    """UsageError for a file, and for an empty path: an unset variable of a CI workflow, not the
    working directory."""
    if not path.strip() or os.path.isfile(path):
        problem = "--baseline is empty" if not path.strip() else f"--baseline: {path} is a file"
        raise UsageError(
            problem, hint="it names a folder, which holds one file per script and device"
        )
    return BaselineFolder(path)


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
            ranges[key] = found.low, found.high
    between = profile.between and replace(
        profile.between,
        ops=_sorted(profile.between.ops),
        blockers=_sorted(profile.between.blockers),
        kernels=_sorted_kernels(profile.between.kernels),
        periodic=tuple(work for work in profile.between.periodic if work.period),
    )
    return Profile(
        target=profile.target,
        # Less what would differ although nothing changed.
        environment=dataclasses.replace(
            profile.environment, recorded_at=None, git=None, platform=None
        ),
        mode=profile.mode,
        step=profile.step,
        metrics=metrics,
        shapes=profile.shapes,
        blockers=_sorted(profile.blockers),
        replay=Replay(profile.replay.status),
        kernels=_sorted_kernels(profile.kernels),
        ops=_sorted(profile.ops),
        between=between,
        launches_by_operator=_operators(profile),
        facts=Facts(
            ranges=ranges or None,
            blocker_ranges=profile.facts.blocker_ranges,
        ),
        counting=profile.counting,
    )


def _operators(profile: Profile) -> tuple[OverheadRow, ...] | None:
    rows = profile.launches_by_operator
    return rows and tuple(
        OverheadRow(row.name, _rounded(row.launches), None)
        for row in sorted(rows, key=lambda row: row.name)
        if row.part == "known"
    )


def _sorted(rows: tuple[_Row, ...]) -> tuple[_Row, ...]:
    return tuple(sorted(rows, key=lambda row: (row.where or _NOWHERE, str(row))))


def _sorted_kernels(rows: tuple[KernelRow, ...]) -> tuple[KernelRow, ...]:
    return tuple(
        KernelRow(k.name, _rounded(k.count), _rounded(k.total_us), k.where)
        for k in sorted(rows, key=lambda k: k.name)
    )


def _encoded(baseline: Profile) -> bytes:
    """Indented JSON with sorted keys, without default values."""
    fields = {**_without_defaults(baseline), "schema": baseline.schema}
    data = msgspec.json.encode(fields, order="deterministic")
    return inert_json(msgspec.json.format(data, indent=1)) + b"\n"


def _without_defaults(value: Any) -> Any:
    """Records as dicts without the fields that have their default value."""
    if hasattr(type(value), "__match_args__"):
        return {
            name: _without_defaults(own)
            for name, field in signature(type(value)).parameters.items()
            if (own := getattr(value, name)) != field.default
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
