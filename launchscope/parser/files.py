"""Reads back from JSON what was saved: recordings, Profiles, and what reports are made of."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from launchscope.errors import InputError
from launchscope.model import Check, Comparison, Difference, Profile, Ranks, Recording

RECORDING_FILE = "recording.json"

Saved = Comparison | Difference | Ranks | Check
# What is rendered again as it was saved, by the word that its schema has for it.
SAVED: dict[str, type[Saved]] = {
    "comparison": Comparison,
    "difference": Difference,
    "ranks": Ranks,
    "check": Check,
}

Kind = TypeVar("Kind", bound=Saved | Profile)
# How to make a file again that another version wrote.
_MADE_BY = {
    "recording": "launchscope profile --keep-trace SCRIPT",
    "Profile": "launchscope profile -o FILE SCRIPT, or launchscope check --update-baseline SCRIPT "
    "for a baseline",
    "comparison": "launchscope compare -o FILE SCRIPT",
    "check": "launchscope check -o FILE SCRIPT",
}


class _Head(msgspec.Struct):
    """Only the field that says what a file is."""

    schema: Any = None


def read_recording(path: str | Path) -> Recording:
    """The recording in a directory that holds `recording.json`, or in that file itself.

    `directory` of the result is where the file lies, whatever it said when it was written.
    Like all functions here, raises InputError for a file that is missing, damaged, foreign or of
    another schema version.
    """
    path = Path(path)
    file = path / RECORDING_FILE if path.is_dir() else path
    content = _content(file, "recording")
    _check(content, str(file), "recording", Recording.schema)
    try:
        fields = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
        fields["directory"] = msgspec.Raw(b'""')  # set below: a path need not be valid Unicode
        recording = msgspec.json.decode(msgspec.json.encode(fields), type=Recording)
    except msgspec.MsgspecError as error:
        raise _damaged(file, "recording", error) from error
    return replace(recording, directory=str(file.parent))


def read_profile(path: str | Path) -> Profile:
    """The Profile in this JSON file."""
    return parse_profile(_content(Path(path), "Profile"), str(path))


def parse_profile(content: bytes, place: str) -> Profile:
    """The Profile in these bytes, which came from `place`."""
    return _decoded(content, place, "Profile", Profile)


def read_comparison(path: str | Path) -> Comparison:
    """The Comparison in this JSON file."""
    return _decoded(_content(Path(path), "comparison"), str(path), "comparison", Comparison)


def read_saved(path: str | Path, noun: str) -> Saved:
    """The saved value that a report was rendered from; `noun` is a key of `SAVED`."""
    return _decoded(_content(Path(path), noun), str(path), noun, SAVED[noun])


def _content(file: Path, noun: str) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"no {noun} at {file}") from error
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error


def _decoded(content: bytes, place: str, noun: str, kind: type[Kind]) -> Kind:
    _check(content, place, noun, kind.schema)
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.MsgspecError as error:
        raise _damaged(place, noun, error) from error


def _check(content: bytes, file: str, noun: str, schema: str) -> None:
    """InputError unless the `schema` in the file is this one."""
    try:
        found = msgspec.json.decode(content, type=_Head).schema
    except msgspec.ValidationError as error:
        raise InputError(f"{file} is not a launchscope {noun}") from error
    except msgspec.DecodeError as error:
        raise _damaged(file, noun, _named(error, content)) from error
    if found == schema:
        return
    family = schema.rsplit("/", 1)[0]
    if isinstance(found, str) and re.fullmatch(re.escape(family) + r"/\S+", found):
        raise InputError(
            f"another version of launchscope wrote {file} ({found}), and this one reads {schema}",
            hint=f"make it again: {_MADE_BY.get(noun, 'launchscope report')}",
        )
    if isinstance(found, str) and found.startswith("launchscope/"):
        raise InputError(f"{file} is a launchscope file of another kind ({found}), not a {noun}")
    raise InputError(f"{file} is not a launchscope {noun}")


def _named(error: Exception, content: bytes) -> Exception:
    """Names the most frequent mistake: a value that Python writes and JSON does not have."""
    place = re.search(r"\(byte (\d+)\)", str(error))
    at = int(place[1]) if place else len(content)
    word = re.match(rb"NaN|Infinity", content[at:])
    if word is None:
        return error
    return ValueError(f"{word[0].decode()} at byte {at} is not JSON")


def _damaged(file: Path | str, noun: str, error: Exception) -> InputError:
    article = "" if noun == "ranks" else "a "
    return InputError(f"{file} is damaged and cannot be read as {article}{noun}: {error}")
