"""A `file:line` of the person's code, taken apart for formats that want the two."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """`file` as it was recorded: relative to where the script ran, if it lies below it."""

    file: str
    line: int


def place_of(where: str | None) -> Place | None:
    """None for what is no file and line."""
    file, _, line = (where or "").rpartition(":")
    return Place(file, int(line)) if file and line.isdigit() and int(line) > 0 else None
