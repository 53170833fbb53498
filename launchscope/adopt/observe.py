"""From the step of a profile to what the rewrite takes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from launchscope.adopt.patch import Place
from launchscope.model import StepBoundary


def places_of(step: StepBoundary, folder: Path) -> tuple[Place, ...]:
    """The calls of a step that was profiled in `folder`."""
    return tuple(
        Place(
            call.what,
            tuple((_absolute(f.file, folder), f.line, f.function) for f in call.frames),
        )
        for call in step.calls
    )


def reader_of(step: StepBoundary, folder: Path) -> Callable[[Path], bytes]:
    """Reads a file that made the calls of the step. It raises OSError where it cannot, and
    ChangedError where the file is not what ran."""
    known = {Path(_absolute(source.file, folder)): source.sha256 for source in step.sources}

    def read(path: Path) -> bytes:
        data = path.read_bytes()
        if known.get(path, "") != hashlib.sha256(data).hexdigest():
            raise ChangedError(path)
        return data

    return read


class ChangedError(Exception):
    """A file is another one than it was when its code ran."""


def _absolute(file: str, folder: Path) -> str:
    return file if file.startswith("<") else str(folder / file)
