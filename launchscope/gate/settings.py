"""[tool.launchscope.check]: what the settings file says about checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from launchscope.config import (
    Command,
    Flag,
    Positive,
    Table,
    Text,
    check_table,
    convert_table,
    kinds_of,
)
from launchscope.gate.limits import Limits, limits_from_config

MissingPolicy = Literal["fail", "pass", "write"]


@dataclass(frozen=True)
class Workload:
    """One workload: its script with arguments, and limits of its own."""

    command: Command = ()
    limits: Limits = field(default_factory=dict)


@dataclass(frozen=True)
class CheckSettings:
    """The settings of `check`; None where the file says nothing."""

    baseline: Text | None = None
    repeats: Positive | None = None
    missing_baseline: MissingPolicy | None = None
    strict: Flag = False
    confirm: Flag = False
    limits: Limits = field(default_factory=dict)
    workloads: Mapping[str, Workload] = field(default_factory=dict)

    def limits_for(self, workload: str) -> Limits:
        """The limits of the workload, then those of all."""
        own = self.workloads.get(workload)
        return {**self.limits, **(own.limits if own is not None else {})}


def check_settings(config: Path | None = None) -> CheckSettings:
    """What the settings file says; ConfigError for an unknown name or a wrong value."""
    table, file = check_table(config)
    place = f"{file}: check."
    values = _entries(CheckSettings, table, place)
    workloads = {
        name: Workload(**_entries(Workload, own, f"{place}workloads.{name}."))
        for name, own in values.pop("workloads", {}).items()
    }
    return CheckSettings(**values, workloads=workloads)


def _entries(kind: type, table: object, place: str) -> dict[str, Any]:
    kinds = kinds_of(kind)
    kinds |= {name: Table for name in ("limits", "workloads") if name in kinds}
    values = convert_table(table, kinds, place)
    if "limits" in values:
        values["limits"] = limits_from_config(values["limits"], f"{place}limits")
    return values
