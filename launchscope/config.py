"""Settings: flags > LAUNCHSCOPE_* environment > [tool.launchscope] in pyproject.toml > defaults."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from launchscope.errors import ConfigError, UsageError
from launchscope.host import working_directory
from launchscope.model import Schedule

ENV_PREFIX = "LAUNCHSCOPE_"
# Not a setting of a run: with 1, the last run is not kept.
NO_CACHE_VARIABLE = "LAUNCHSCOPE_NO_CACHE"
# Read elsewhere: the switch of `graphed`, which imports nothing of ours.
_NO_SETTINGS = (NO_CACHE_VARIABLE, "LAUNCHSCOPE_GRAPHED")
CHECK_SECTION = "check"
_LARGEST = 1 << 24  # bytes of a settings file

# What a setting can be. The description completes "expected ..." in an error.
Count = Annotated[int, Meta(ge=0, description="a whole number, 0 or more")]
Positive = Annotated[int, Meta(ge=1, description="a whole number, 1 or more")]
Compared = Annotated[int, Meta(ge=6, description="a whole number, 6 or more")]
Seconds = Annotated[float, Meta(gt=0, le=1e9, description="a number of seconds above 0")]
Percentage = Annotated[float, Meta(ge=0, le=100, description="a percentage such as 15%")]
Flag = Annotated[bool, Meta(description="true or false")]
Text = Annotated[str, Meta(min_length=1, description="a text")]
Interpreter = Annotated[str, Meta(min_length=1, description="the path of a Python interpreter")]
Table = Annotated[dict[str, Any], Meta(description="a table")]

StrPath: TypeAlias = str | os.PathLike[str]
Spelling: TypeAlias = Callable[[str], str]


class Settings(Struct, frozen=True):
    """How a script is run and weighed. Field names are those of the flags; `timeout` is in
    seconds, `threshold` in percent."""

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
    verify_steps: Compared = 24

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
    values = convert_table(table, kinds, f"{path}: ") | _from_environment(kinds)
    settings = Settings(**{**(defaults or {}), **values, **convert_flags(flags or {}, kinds)})
    if settings.step_from == "forward" and settings.wait_for == "optimizer":
        raise UsageError(
            "--step-from forward and --wait-for optimizer exclude each other",
            hint="leave out --wait-for optimizer to measure the forwards",
        )
    return settings


def convert_flags(flags: Mapping[str, object], kinds: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that were given, each as its kind; UsageError for an unknown or wrong one."""
    values = {}
    for name, raw in flags.items():
        if raw is not None:
            if name not in kinds:
                raise _unknown(UsageError, f"there is no setting {name!r}", name, kinds, str)
            values[name] = convert(raw, kinds[name], f"--{_dashed(name)}", UsageError)
    return values


def check_table(config: Path | None = None) -> tuple[object, str]:
    """[tool.launchscope.check] of the settings file as it is ({} if there is none), and the name
    of the file."""
    table, path = _section(config)
    return table.get(CHECK_SECTION, {}), str(path)


def kinds_of(kind: type) -> dict[str, Any]:
    """The annotation of every field of a dataclass, without its None."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        name: next((arg for arg in get_args(hint) if NoneType in get_args(hint)), hint)
        for name, hint in hints.items()
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


def convert_table(table: object, kinds: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The entries of a TOML table by field name, each as its kind. Raises ConfigError for an
    unknown key, which names the nearest known one, and for a wrong value."""
    values = {}
    for key, raw in convert(table, Table, place.rstrip(".: ")).items():
        name = key.replace("-", "_")
        if name not in kinds:
            raise _unknown(ConfigError, f"{place}unknown setting {key!r}", name, kinds, _dashed)
        values[name] = convert(raw, kinds[name], f"{place}{key}")
    return values


def _unknown(
    error: type[UsageError], message: str, name: str, known: Iterable[str], spell: Spelling
) -> UsageError:
    near = get_close_matches(name, known, n=1, cutoff=0.4)
    names = ", ".join(map(spell, known))
    return error(message, hint=f"did you mean {spell(near[0])}?" if near else f"known: {names}")


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _section(config: StrPath | None) -> tuple[dict[str, Any], Path | None]:
    """[tool.launchscope] of the settings file, or all of a file with another name."""
    folder = Path(working_directory())
    candidates = (parent / "pyproject.toml" for parent in (folder, *folder.parents))
    path = Path(config) if config else next(filter(os.path.isfile, candidates), None)
    if path is None:
        return {}, None
    table = _read_toml(path, required=config is not None)
    tool = table.get("tool")
    section = tool.get("launchscope") if isinstance(tool, dict) else None
    if section is None:
        section = {} if path.name == "pyproject.toml" else table
    return convert(section, Table, f"{path}: tool.launchscope"), path


def _read_toml(path: Path, *, required: bool) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)  # a device would never end
        if len(content) > _LARGEST:
            raise ConfigError(f"{path} is too large for a settings file")
        return dict(tomllib.loads(content.decode()))
    except OSError as error:
        if not required:
            return {}
        raise ConfigError(
            f"cannot read {path}: {error.strerror or error}", hint="--config takes a TOML file"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def _from_environment(kinds: Mapping[str, Any]) -> dict[str, Any]:
    # In a profiled script the environment also has variables that the runner set for it.
    nested = "LAUNCHSCOPE" in os.environ
    values = {}
    for key, raw in sorted(os.environ.items()):
        if not key.startswith(ENV_PREFIX) or key in _NO_SETTINGS:
            continue
        name = key[len(ENV_PREFIX) :].lower()
        if name in kinds:
            if raw.strip():
                values[name] = convert(raw, kinds[name], key)
        elif not nested:
            message = f"unknown environment variable {key}"
            raise _unknown(ConfigError, message, name, kinds, lambda n: ENV_PREFIX + n.upper())
    return values
