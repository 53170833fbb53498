"""[tool.launchscope.check]: what the gate is told in the settings file."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from launchscope.config import check_table
from launchscope.errors import ConfigError, UsageError
from launchscope.gate.limits import Limits, limits_from_config

__all__ = ["MISSING", "CheckSettings", "check_settings", "missing_policy"]

MISSING = ("fail", "pass", "write")
_TABLES = ("limits", "workloads")


@dataclass(frozen=True)
class Workload:
    """What the settings file says of one workload."""

    command: tuple[str, ...] = ()  # script and its arguments, as after `python`
    limits: Limits = field(default_factory=dict)


@dataclass(frozen=True)
class CheckSettings:
    """The settings file's own; None where it says nothing."""

    baseline: str | None = None
    repeats: int | None = None
    missing_baseline: str | None = None
    strict: bool = False
    confirm: bool = False
    limits: Limits = field(default_factory=dict)
    workloads: Mapping[str, Workload] = field(default_factory=dict)

    def limits_for(self, workload: str) -> Limits:
        """Those of the workload before those of all."""
        own = self.workloads.get(workload)
        return {**self.limits, **(own.limits if own is not None else {})}


def check_settings(config: Path | None = None) -> CheckSettings:
    """What the settings file says; ConfigError for names and values it cannot mean."""
    table, place = check_table(config)
    values: dict[str, Any] = {}
    for key, raw in table.items():
        name = key.replace("-", "_")
        at = f"{place}: check.{key}"
        if name == "limits":
            values[name] = limits_from_config(_table(raw, at), at)
        elif name == "workloads":
            values[name] = {
                workload: _workload(_table(own, f"{at}.{workload}"), f"{at}.{workload}")
                for workload, own in _table(raw, at).items()
            }
        elif name in _READ:
            values[name] = _READ[name](raw, at)
        else:
            _unknown(f"{place}: check: unknown setting {key!r}", name, [*_READ, *_TABLES])
    return CheckSettings(**values)


def missing_policy(text: str, place: str, error: type[UsageError] = UsageError) -> str:
    """One of MISSING; `error` otherwise."""
    if text in MISSING:
        return text
    near = get_close_matches(str(text), MISSING, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else None
    raise error(f"{place}: expected one of {', '.join(MISSING)}, not {text!r}", hint=hint)


def _workload(table: Mapping[str, Any], place: str) -> Workload:
    for key in table:
        if key not in ("command", "limits"):
            _unknown(f"{place}: unknown setting {key!r}", key, ["command", "limits"])
    raw = table.get("limits", {})
    limits = limits_from_config(_table(raw, f"{place}.limits"), f"{place}.limits")
    return Workload(_command(table.get("command", []), f"{place}.command"), limits)


def _command(raw: Any, place: str) -> tuple[str, ...]:
    if isinstance(raw, str):
        try:
            return tuple(shlex.split(raw))
        except ValueError as error:
            raise ConfigError(f"{place}: {error}") from error
    if isinstance(raw, list) and all(isinstance(word, str) for word in raw):
        return tuple(raw)
    raise ConfigError(f"{place}: expected a command line, not {raw!r}")


def _table(raw: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(raw, dict):
        raise ConfigError(f"{place} is not a table")
    return raw


def _unknown(message: str, name: str, known: list[str]) -> NoReturn:
    shown = [option.replace("_", "-") for option in known]
    near = get_close_matches(name.replace("_", "-"), shown, n=1, cutoff=0.4)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(shown)}"
    raise ConfigError(message, hint=hint)


def _string(raw: Any, place: str) -> str:
    if not isinstance(raw, str) or not raw.strip():
        raise ConfigError(f"{place}: expected a text, not {raw!r}")
    return raw


def _repeats(raw: Any, place: str) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int) or raw < 1:
        raise ConfigError(f"{place}: expected a whole number, 1 or more, not {raw!r}")
    return raw


def _flag(raw: Any, place: str) -> bool:
    if not isinstance(raw, bool):
        raise ConfigError(f"{place}: expected true or false, not {raw!r}")
    return raw


_READ = {
    "baseline": _string,
    "repeats": _repeats,
    "missing_baseline": lambda raw, at: missing_policy(_string(raw, at), at, ConfigError),
    "strict": _flag,
    "confirm": _flag,
}
