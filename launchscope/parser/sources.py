"""Finds the readers of trace files: every module of this package that exposes SOURCE."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from launchscope.errors import InputError
from launchscope.parser.trace import Trace

__all__ = ["Source", "is_trace", "read_trace", "sources"]


@dataclass(frozen=True)
class Source:
    """One trace format. `detect` looks at the start of the file only and never raises."""

    name: str
    detect: Callable[[Path], bool]
    read: Callable[[Path], Trace]


@cache
def sources() -> tuple[Source, ...]:
    """All trace formats, by name."""
    package = importlib.import_module("launchscope.parser")
    found = []
    for info in pkgutil.iter_modules(package.__path__):
        source = getattr(importlib.import_module(f"{package.__name__}.{info.name}"), "SOURCE", None)
        if isinstance(source, Source):
            found.append(source)
    return tuple(sorted(found, key=lambda source: source.name))


def is_trace(path: str | Path) -> bool:
    """Whether the file begins like a trace of a known format, whatever its name."""
    path = Path(path)
    return path.is_file() and any(source.detect(path) for source in sources())


def read_trace(path: str | Path) -> Trace:
    """The trace in this file, whichever known format it has.

    Raises InputError when the file is missing, of no known format, or beyond repair.
    """
    path = Path(path)
    if not path.is_file():
        # A recording names its traces as they were written; stored ones may be gzipped since.
        path = next((p for p in (Path(f"{path}.gz"),) if p.is_file()), path)
    if not path.is_file():
        raise InputError(f"no trace file at {path}")
    for source in sources():
        if source.detect(path):
            return source.read(path)
    known = ", ".join(source.name for source in sources())
    raise InputError(
        f"{path} is not a trace that launchscope can read",
        hint=f"known trace formats: {known}",
    )
