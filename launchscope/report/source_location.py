"""A `file:line` of the person's code, taken apart for formats that want the two."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """`file` is relative to where the script ran, or to the repository, if it lies below it."""

    file: str
    line: int


def place_of(where: str | None, folder: object = "") -> Place | None:
    """None for what is no file and line. `folder` is where the script ran, below the repository."""
    file, _, line = (where or "").rpartition(":")
    if not file or not line.isdecimal() or int(line) < 1:
        return None
    return Place(os.path.normpath(os.path.join(str(folder), file)) if folder else file, int(line))
