"""Settings: flags > LAUNCHSCOPE_* environment > [tool.launchscope] in pyproject.toml > defaults.

Unknown names and values of the wrong form are errors that name the nearest known one.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any, Literal, NoReturn

from launchscope.errors import ConfigError, UsageError
from launchscope.model import Schedule

__all__ = ["BATCH_VARIABLE", "Settings", "check_table", "load_settings"]

ENV_PREFIX = "LAUNCHSCOPE_"
# No setting: `compare` sets it for scripts that read their batch size from it, and people do too.
BATCH_VARIABLE = "LAUNCHSCOPE_BATCH_SIZE"
CHECK_SECTION = "check"
STEP_FROM = ("auto", "marker", "optimizer", "forward", "none")


@dataclass(frozen=True)
class Settings:
    """What a run is made with. Field names are the flags' names; `timeout` is in seconds."""

    warmup: int = Schedule.warmup
    timing: int = Schedule.timing
    trace: int = Schedule.trace
    inspect: int = Schedule.inspect
    replay: int = Schedule.replay
    verify: int = Schedule.verify
    step_from: Literal["auto", "marker", "optimizer", "forward", "none"] = "auto"
    threshold: float = 15.0  # per cent
    expected_steps: int | None = None
    timeout: float | None = None
    max_runs: int = 4
    full: bool = False
    keep_trace: bool = False
    python: str | None = None
    command: str | None = None  # of `compare`, where none is typed
    max_graphs: int = 8
    graph_memory: int | None = None  # MiB that all graphs of a bucket plan may hold

    @property
    def schedule(self) -> Schedule:
        """The part of them that the passes go by."""
        mine = {field.name for field in fields(self)}
        return Schedule(
            **{
                field.name: getattr(self, field.name)
                for field in fields(Schedule)
                if field.name in mine
            }
        )


def load_settings(
    flags: Mapping[str, Any] | None = None,
    *,
    config: Path | None = None,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Settings:
    """The settings in force. A flag that is None was not given.

    `config` names the file to read in place of the nearest pyproject.toml above `folder`
    (the working directory). Raises UsageError for a flag, ConfigError for the rest.
    """
    values: dict[str, Any] = {}
    path = config or _nearest_pyproject(folder or Path.cwd())
    if path is not None:
        values |= _from_file(path, chosen=config is not None)
    values |= _from_environment(os.environ if environ is None else environ)
    for name, raw in (flags or {}).items():
        if raw is not None:
            values[name] = _parsed(name, raw, "--" + name.replace("_", "-"), UsageError)
    return Settings(**values)


def check_table(config: Path | None = None) -> tuple[dict[str, Any], str]:
    """[tool.launchscope.check] as it stands in the settings file, and that file's name.

    The gate knows what may be in it. Empty where there is none; ConfigError where it is no table.
    """
    path = config or _nearest_pyproject(Path.cwd())
    if path is None:
        return {}, ""
    table = _section(path, chosen=config is not None).get(CHECK_SECTION, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: {CHECK_SECTION} is not a table")
    return table, str(path)


# ---------------------------------------------------------------------- sources


def _nearest_pyproject(folder: Path) -> Path | None:
    folder = folder.resolve()
    candidates = (place / "pyproject.toml" for place in (folder, *folder.parents))
    return next((path for path in candidates if path.is_file()), None)


def _from_file(path: Path, *, chosen: bool) -> dict[str, Any]:
    values = {}
    for key, raw in _section(path, chosen=chosen).items():
        name = key.replace("-", "_")
        if name == CHECK_SECTION:
            continue
        if name not in _PARSERS:
            _unknown(f"{path}: unknown setting {key!r}", name, lambda n: n.replace("_", "-"))
        values[name] = _parsed(name, raw, f"{path}: {key}", ConfigError)
    return values


def _section(path: Path, *, chosen: bool) -> dict[str, Any]:
    """[tool.launchscope] of a TOML file; the whole file if it is not a pyproject.toml."""
    table = _read_toml(path, chosen=chosen)
    tool = table.get("tool")
    section = tool.get("launchscope") if isinstance(tool, dict) else None
    if section is None:
        section = {} if path.name == "pyproject.toml" else table
    if not isinstance(section, dict):
        raise ConfigError(f"{path}: tool.launchscope is not a table")
    return section


def _read_toml(path: Path, *, chosen: bool) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        with path.open("rb") as file:
            return dict(tomllib.load(file))
    except OSError as error:
        if not chosen:
            return {}
        raise ConfigError(
            f"cannot read {path}: {error.strerror or error}", hint="--config names a TOML file"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    # Inside a profiled script the environment also holds what launchscope tells its child.
    nested = "LAUNCHSCOPE" in environ
    values = {}
    for key in sorted(environ):
        if not key.startswith(ENV_PREFIX) or key == BATCH_VARIABLE:
            continue
        name = key[len(ENV_PREFIX) :].lower()
        if name in _PARSERS:
            if environ[key].strip():
                values[name] = _parsed(name, environ[key].strip(), key, ConfigError)
        elif not nested:
            _unknown(f"unknown environment variable {key}", name, lambda n: ENV_PREFIX + n.upper())
    return values


def _unknown(message: str, name: str, spell: Callable[[str], str]) -> NoReturn:
    near = get_close_matches(name, _PARSERS, n=1, cutoff=0.5)
    known = ", ".join(spell(known) for known in _PARSERS)
    raise ConfigError(
        message, hint=f"did you mean {spell(near[0])}?" if near else f"known are {known}"
    )


# ----------------------------------------------------------------------- values


def _parsed(name: str, raw: Any, place: str, error: type[UsageError]) -> Any:
    parse, form = _PARSERS[name]
    try:
        return parse(raw)
    except ValueError as why:
        shown = raw if isinstance(raw, str) else repr(raw)
        hint = str(why) or None
        raise error(f"{place}: expected {form}, not {shown}", hint=hint) from None


def _integer(raw: Any, least: int) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int | str):
        raise ValueError
    try:
        value = int(raw)
    except ValueError:
        raise ValueError from None
    if value < least:
        raise ValueError
    return value


def _count(raw: Any) -> int:
    return _integer(raw, 0)


def _positive(raw: Any) -> int:
    return _integer(raw, 1)


def _number(raw: Any) -> float:
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise ValueError
    try:
        value = float(raw)
    except ValueError:
        raise ValueError from None
    if not isfinite(value):
        raise ValueError
    return value


def _seconds(raw: Any) -> float:
    value = _number(raw)
    if value <= 0:
        raise ValueError
    return value


def _percentage(raw: Any) -> float:
    """`15%`, `15` and 15 are 15 per cent. 0.15 could mean two things and is refused."""
    marked = isinstance(raw, str) and raw.strip().endswith("%")
    value = _number(raw.strip().removesuffix("%").strip() if isinstance(raw, str) else raw)
    if not 0 <= value <= 100:
        raise ValueError
    if 0 < value < 1 and not marked:
        raise ValueError(f"write {value * 100:g}% or {value:g}%")
    return value


def _boolean(raw: Any) -> bool:
    if isinstance(raw, bool):
        return raw
    known = {"1": True, "true": True, "yes": True, "on": True}
    known |= {"0": False, "false": False, "no": False, "off": False}
    if not isinstance(raw, str) or raw.lower() not in known:
        raise ValueError
    return known[raw.lower()]


def _step_from(raw: Any) -> str:
    if raw in STEP_FROM:
        return str(raw)
    near = get_close_matches(str(raw), STEP_FROM, n=1, cutoff=0.5)
    raise ValueError(f"did you mean {near[0]}?" if near else "")


def _string(raw: Any) -> str:
    if not isinstance(raw, str) or not raw.strip():
        raise ValueError
    return raw


def _command(raw: Any) -> str:
    """A string as typed in a shell, or a list of its words."""
    if isinstance(raw, list) and raw and all(isinstance(word, str) for word in raw):
        return shlex.join(raw)
    text = _string(raw)
    shlex.split(text)  # ValueError for an open quote
    return text


_COUNT = (_count, "a whole number, 0 or more")
_POSITIVE = (_positive, "a whole number, 1 or more")
_FLAG = (_boolean, "true or false")
_PARSERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "warmup": _COUNT,
    "timing": _COUNT,
    "trace": _COUNT,
    "inspect": _COUNT,
    "replay": _COUNT,
    "verify": _COUNT,
    "step_from": (_step_from, f"one of {', '.join(STEP_FROM)}"),
    "threshold": (_percentage, "a percentage such as 15%"),
    "expected_steps": _POSITIVE,
    "timeout": (_seconds, "a number of seconds above 0"),
    "max_runs": _POSITIVE,
    "full": _FLAG,
    "keep_trace": _FLAG,
    "python": (_string, "the path of a Python interpreter"),
    "command": (_command, 'a command such as "train.py --epochs 1"'),
    "max_graphs": _POSITIVE,
    "graph_memory": _POSITIVE,
}
assert set(_PARSERS) == {field.name for field in fields(Settings)}
