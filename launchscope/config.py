"""Settings: flags, before [tool.launchscope] in pyproject.toml, before defaults."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from launchscope.errors import ConfigError, UsageError, raised_as
from launchscope.host import working_directory
from launchscope.model import Schedule

CHECK_SECTION = "check"

# What a setting can be. The description completes "expected ..." in an error.
Count = Annotated[int, Meta(ge=0, description="a whole number, 0 or more")]
Positive = Annotated[int, Meta(ge=1, description="a whole number, 1 or more")]
Seconds = Annotated[float, Meta(gt=0, le=1e9, description="a number of seconds above 0")]
Percentage = Annotated[float, Meta(ge=0, le=100, description="a percentage such as 15%")]
Flag = Annotated[bool, Meta(description="true or false")]
Text = Annotated[str, Meta(min_length=1, description="a text")]
Interpreter = Annotated[str, Meta(min_length=1, description="the path of a Python interpreter")]
Table = Annotated[dict[str, Any], Meta(description="a table")]

StrPath: TypeAlias = str | os.PathLike[str]


class Settings(Struct, frozen=True):
    """How a script is run and weighed. Field names are those of the flags; `timeout` and
    `every` are in seconds, `threshold` in percent."""

    warmup: Count = Schedule.warmup
    timing: Count = Schedule.timing
    trace: Count = Schedule.trace
    inspect: Count = Schedule.inspect
    replay: Count = Schedule.replay
    verify: Count = Schedule.verify
    step_from: Literal["auto", "marker", "optimizer", "forward", "none"] = "auto"
    skip_steps: Count = Schedule.skip_steps
    wait_for: Literal["step", "optimizer"] = "step"
    threshold: Percentage = 15.0
    expected_steps: Positive | None = None
    timeout: Seconds | None = None
    max_runs: Positive = 4
    full: Flag = False
    keep_trace: Flag = False
    python: Interpreter | None = None
    every: Seconds = 60.0

    @property
    def schedule(self) -> Schedule:
        """The settings that the passes follow."""
        shared = {*self.__struct_fields__} & {*Schedule.__match_args__}
        return Schedule(**{name: getattr(self, name) for name in shared})


def load_settings(
    flags: Mapping[str, object] | None = None,
    *,
    config: StrPath | None = None,
    defaults: Mapping[str, int] | None = None,
) -> Settings:
    """The settings in force. A flag that is None was not given; without `config` the nearest
    pyproject.toml is read. `defaults` are those of one command, where they differ. Raises
    UsageError for a flag, ConfigError for the rest."""
    kinds = kinds_of(Settings)
    table, path = _section(config)
    table.pop(CHECK_SECTION, None)
    values = convert_table(table, kinds, f"{path}: ") | convert_flags(flags or {}, kinds)
    settings = Settings(**{**(defaults or {}), **values})
    if settings.step_from == "forward" and settings.wait_for == "optimizer":
        raise UsageError(
            "--step-from forward and --wait-for optimizer exclude each other",
            hint="leave out --wait-for optimizer to measure the forwards",
        )
    return settings


def convert_flags(flags: Mapping[str, object], kinds: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that were given, each as its kind; UsageError for an unknown or wrong one."""
    given = {name: raw for name, raw in flags.items() if raw is not None}
    return _converted(given, kinds, "--", UsageError)


def convert_table(table: object, kinds: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The entries of a TOML table by field name, each as its kind. Raises ConfigError for an
    unknown key and for a wrong value."""
    return _converted(convert(table, Table, place.rstrip(".: ")), kinds, place, ConfigError)


def _converted(
    values: Mapping[str, object], kinds: Mapping[str, Any], place: str, error: type[UsageError]
) -> dict[str, Any]:
    """By field name; `error` for an unknown key, with the nearest known one."""
    made = {}
    for key, raw in values.items():
        name = key.replace("-", "_")
        if name not in kinds:
            known = [_dashed(kind) for kind in kinds]
            near = get_close_matches(_dashed(key), known, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
            raise error(f"{place}{_dashed(key)}: there is no such setting", hint=hint)
        made[name] = convert(raw, kinds[name], f"{place}{_dashed(key)}", error)
    return made


def check_table(config: StrPath | None = None) -> tuple[object, str]:
    """[tool.launchscope.check] of the settings file as it is ({} if there is none), and the name
    of the file."""
    table, path = _section(config)
    return table.get(CHECK_SECTION, {}), str(path)


def kinds_of(kind: type) -> dict[str, Any]:
    """The annotation of every field of a dataclass, without its None."""
    return {
        name: next((arg for arg in get_args(hint) if NoneType in get_args(hint)), hint)
        for name, hint in get_type_hints(kind, include_extras=True).items()
    }


def convert(raw: object, kind: Any, place: str, error: type[UsageError] = ConfigError) -> Any:
    """`raw` as a value of `kind`, which is one of those above or a Literal. Raises `error` with the
    place and the form that was expected there."""
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    try:
        value = msgspec.convert(_prepared(raw, kind), kind, strict=False)
        if kind is Percentage and 0 < value < 1 and "%" not in str(raw):
            raise ValueError(f"write {value * 100:g}% or {value:g}%")
        return value
    except (msgspec.ValidationError, UnicodeError):  # their own texts name Python types
        near = get_close_matches(str(raw), choices, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}?" if near else None
    except ValueError as problem:
        hint = str(problem)
    form = f"one of {', '.join(choices)}" if choices else kind.__metadata__[0].description
    shown = raw if isinstance(raw, str) and raw else repr(raw)
    raise error(f"{place}: expected {form}, not {shown}", hint=hint)


def _prepared(raw: object, kind: Any) -> object:
    """What msgspec converts: texts without their spaces, percentages without their sign."""
    value = os.fspath(raw) if isinstance(raw, os.PathLike) else raw
    if not isinstance(value, str):
        return value
    return value.strip().removesuffix("%" if kind is Percentage else "").rstrip()


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _section(config: StrPath | None) -> tuple[dict[str, Any], Path | None]:
    """[tool.launchscope] of the settings file, or all of a file with another name."""
    folder = Path(working_directory())
    candidates = (parent / "pyproject.toml" for parent in (folder, *folder.parents))
    path = Path(config) if config is not None else next(filter(os.path.isfile, candidates), None)
    if path is None:
        return {}, None
    table = _read_toml(path)
    tool = table.get("tool")
    section = tool.get("launchscope") if isinstance(tool, dict) else None
    if section is None:
        section = {} if path.name == "pyproject.toml" else table
    return convert(section, Table, f"{path}: tool.launchscope"), path


def _read_toml(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        with raised_as(ConfigError, f"cannot read {path}", hint="--config takes a TOML file"):
            return dict(tomllib.loads(path.read_text(encoding="utf-8")))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
