"""The settings of `check`: its flags, before [tool.launchscope.check] of the settings file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from launchscope.config import (
    Flag,
    Positive,
    Table,
    Text,
    check_table,
    convert_flags,
    convert_table,
    kinds_of,
)
from launchscope.gate.limits import Limits, limits_from_config
from launchscope.host import working_directory


class CheckSettings(Struct, frozen=True):
    """How a check decides. The limits of the command line are not among these."""

    baseline: Annotated[str, Meta(description="a text")] | None = None
    repeats: Positive = 3
    strict: Flag = False
    against: Text | None = None
    limits: Limits = {}


CHECK_FLAGS = {*CheckSettings.__struct_fields__} - {"limits"}


def check_settings(
    config: str | Path | None = None, flags: Mapping[str, object] | None = None
) -> CheckSettings:
    """The settings in force. A flag that is None was not given. Raises UsageError for a flag,
    ConfigError for an unknown name or a wrong value in the file."""
    table, file = check_table(config)
    place = f"{file}: check."
    kinds = kinds_of(CheckSettings)
    values = convert_table(table, {**kinds, "limits": Table}, place)
    if "limits" in values:
        values["limits"] = limits_from_config(values["limits"], f"{place}limits")
    if "baseline" in values:
        values["baseline"] = _beside(file, values["baseline"])
    return CheckSettings(**values | convert_flags(flags or {}, kinds))


def _beside(file: str, path: str) -> str:
    """A path of the settings file, which is relative to that file, from the working directory."""
    here, folder = working_directory(), os.path.dirname(os.path.abspath(file))
    if not path.strip() or os.path.isabs(path) or folder == here:
        return path
    whole = os.path.join(folder, path)
    return min(os.path.relpath(whole, here), whole, key=len)
