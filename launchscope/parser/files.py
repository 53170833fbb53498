"""Reads back from JSON what was saved: recordings, Profiles, and what reports are made of."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec

from launchscope.errors import InputError
from launchscope.model import (
    Adoption,
    CheckResult,
    Comparison,
    Difference,
    Profile,
    Ranks,
    Recording,
    Watch,
)

Saved: TypeAlias = Adoption | Comparison | Difference | Ranks | CheckResult | Watch
# What is rendered again as it was saved, by the word that its schema has for it.
SAVED: dict[str, type[Saved]] = {
    "adoption": Adoption,
    "comparison": Comparison,
    "difference": Difference,
    "ranks": Ranks,
    "check": CheckResult,
    "watch": Watch,
}
_NOUNS: dict[type, str] = {
    Recording: "recording",
    Profile: "Profile",
    **{SAVED[noun]: noun for noun in SAVED},
}

_MOST_INSPECTED = 100_000  # steps, each of which takes memory
# No figure is as large, or as near to 0, as this: what is calculated from it would overflow.
_LARGEST = 1e150
_DEEPEST = 50
_MOST_BYTES = 1 << 28  # of a file, whose values take many times as much

Kind = TypeVar("Kind", bound=Recording | Profile | Saved)
# How to make a file again that another version wrote.
_MADE_BY = {
    "recording": "launchscope profile --keep-trace SCRIPT",
    "Profile": "launchscope profile -o FILE SCRIPT, or launchscope check --update-baseline SCRIPT "
    "for a baseline",
    "comparison": "launchscope compare -o FILE SCRIPT",
    "check": "launchscope check -o FILE SCRIPT",
    "adoption": "launchscope adopt -o FILE SCRIPT",
    "watch": "launchscope watch -o FILE SCRIPT",
}


class _Head(msgspec.Struct):
    """Only the field that says what a file is."""

    schema: Any = None


def read_recording(path: str | Path) -> Recording:
    """The recording in a directory that holds `recording.json`, or in that file itself. Like all
    functions here, raises InputError for a missing, damaged, foreign or outdated file."""
    file = Path(path) / "recording.json" if Path(path).is_dir() else Path(path)
    recording = read_saved(file, Recording)
    for traced in (recording.trace, recording.replay_trace):
        if traced is not None and os.path.basename(traced.file) != traced.file:
            raise InputError(f"{file} names a trace that is not beside it: {traced.file}")
    if recording.inspect is not None and recording.inspect.steps > _MOST_INSPECTED:
        error = ValueError(f"nobody inspects {recording.inspect.steps} steps")
        raise _damaged(str(file), "recording", error)
    return replace(recording, directory=str(file.parent))


def read_profile(path: str | Path) -> Profile:
    """The Profile in this JSON file."""
    return read_saved(path, Profile)


def read_saved(path: str | Path, kind: type[Kind]) -> Kind:
    """The value of this kind in this JSON file."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):  # a pipe or a device could block forever
            raise InputError(f"{path} is not a file, and cannot be read as a {_NOUNS[kind]}")
        if found.st_size > _MOST_BYTES:
            size = f"{found.st_size / 2**20:,.0f} MiB"
            raise InputError(f"{path} is damaged: no {_NOUNS[kind]} is as large as {size}")
        content = Path(path).read_bytes()
    except FileNotFoundError:
        raise InputError(f"no {_NOUNS[kind]} at {path}") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    return parse_saved(content, str(path), kind)


def parse_saved(content: bytes, place: str, kind: type[Kind]) -> Kind:
    """The value of this kind in these bytes, which came from `place`."""
    noun = _NOUNS[kind]
    _check(content, place, noun, signature(kind).parameters["schema"].default)
    try:
        _require_bounded(msgspec.json.decode(content))
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, RecursionError, ValueError, OverflowError) as error:
        raise _damaged(place, noun, error) from None


def _require_bounded(value: Any, depth: int = 0) -> None:
    """ValueError for plain data with a number beyond what anything measures, or nested deeper than
    any report is."""
    if depth > _DEEPEST:
        raise ValueError(f"values are nested more than {_DEEPEST} deep")
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _require_bounded(item, depth + 1)
    elif isinstance(value, int | float) and not (
        value == 0 or 1 / _LARGEST <= abs(value) <= _LARGEST
    ):
        raise ValueError(f"no figure is beyond {_LARGEST:.0e} or nearer to 0 than its inverse")


def _check(content: bytes, file: str, noun: str, schema: str) -> None:
    """InputError unless the `schema` in the file is this one."""
    try:
        found = msgspec.json.decode(content, type=_Head).schema
    except msgspec.ValidationError as error:
        raise InputError(f"{file} is not a launchscope {noun}") from error
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise _damaged(file, noun, error) from error
    if found == schema:
        return
    known = found if isinstance(found, str) else ""
    if known.startswith(schema.rpartition("/")[0] + "/"):
        raise InputError(
            f"another version of launchscope wrote {file} ({found}), and this one reads {schema}",
            hint=f"make it again: {_MADE_BY.get(noun, 'launchscope report')}",
        )
    if known.startswith("launchscope/"):
        raise InputError(f"{file} is a launchscope file of another kind ({found}), not a {noun}")
    raise InputError(f"{file} is not a launchscope {noun}")


def _damaged(file: str, noun: str, error: Exception) -> InputError:
    article = "" if noun == "ranks" else "a "
    return InputError(f"{file} is damaged and cannot be read as {article}{noun}: {error}")
