"""The settings of `check`: its flags, before [tool.launchscope.check] of the settings file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from launchscope.config import (
    Command,
    Flag,
    Paths,
    Positive,
    Table,
    Text,
    check_table,
    convert_flags,
    convert_table,
    kinds_of,
)
from launchscope.frozen import dataclass
from launchscope.gate.baseline import baseline_path
from launchscope.gate.limits import Limits, limits_from_config
from launchscope.host import working_directory


@dataclass(frozen=True)
class Workload:
    """One workload: its script with arguments, and limits of its own."""

    command: Command = ()
    limits: Limits = field(default_factory=dict)


@dataclass(frozen=True)
class CheckSettings:
    """How a check decides. The limits of the command line are not among these."""

    baseline: Annotated[str, Meta(description="a text")] | None = None
    repeats: Positive = 3
    missing_baseline: Literal["fail", "pass", "write"] = "fail"
    strict: Flag = False
    against: Text | None = None
    link: Paths = ()
    limits: Limits = field(default_factory=dict)
    workloads: Mapping[str, Workload] = field(default_factory=dict)

    def limits_for(self, workload: str) -> Limits:
        """The limits of the workload, then those of all."""
        own = self.workloads.get(workload)
        return {**self.limits, **(own.limits if own is not None else {})}


CHECK_FLAGS = {own.name for own in fields(CheckSettings)} - {"limits", "workloads"}


def check_settings(
    config: Path | None = None, flags: Mapping[str, object] | None = None
) -> CheckSettings:
    """The settings in force. A flag that is None was not given. Raises UsageError for a flag,
    ConfigError for an unknown name or a wrong value in the file."""
    table, file = check_table(config)
    place = f"{file}: check."
    values = _entries(CheckSettings, table, place)
    workloads = {
        name: Workload(**_entries(Workload, own, f"{place}workloads.{name}."))
        for name, own in values.pop("workloads", {}).items()
    }
    if "baseline" in values:
        values["baseline"] = _beside(file, values["baseline"])
    values |= convert_flags(flags or {}, kinds_of(CheckSettings))
    return CheckSettings(**values, workloads=workloads)


def _beside(file: str, baseline: str) -> str:
    """A path of the settings file, which is relative to that file, from the working directory."""
    head, path = baseline_path(baseline)
    here, folder = working_directory(), os.path.dirname(os.path.abspath(file))
    if not path.strip() or os.path.isabs(path) or folder == here:
        return baseline
    whole = os.path.join(folder, path)
    return head + min(os.path.relpath(whole, here), whole, key=len)


def _entries(kind: type, table: object, place: str) -> dict[str, Any]:
    kinds = kinds_of(kind)
    kinds |= {name: Table for name in ("limits", "workloads") if name in kinds}
    values = convert_table(table, kinds, place)
    if "limits" in values:
        values["limits"] = limits_from_config(values["limits"], f"{place}limits")
    return values
