"""Finds the readers of trace files: every module of this package that exposes SOURCE."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path

from msgspec import Struct

from launchscope.errors import InputError
from launchscope.host import free_memory
from launchscope.parser.trace import Trace
from launchscope.plugins import load_plugins

# Reading and analyzing a trace takes this many times the memory of its columns (measured on a trace
# of 1 GB: 4.7).
_ANALYSIS = 5


class Reading(Struct, frozen=True):
    """How much of a trace is read, and the memory that this may take."""

    op_names: bool = True  # False: only when operators began, and no Python calls
    memory_bytes: int | None = None  # None: half of what is free

    def limit(self) -> int:
        """Bytes that the columns of a trace may take, so that its analysis fits too."""
        return (self.memory_bytes or usable_memory()) // _ANALYSIS


class Source(Struct, frozen=True):
    """One trace format. `detect` looks at the start of the file only and never raises."""

    name: str
    detect: Callable[[Path], bool]
    read: Callable[[Path, Reading], Trace]


DEFAULTS = Reading()


@cache
def sources() -> tuple[Source, ...]:
    """All trace formats, by name."""
    return load_plugins("launchscope.parser", "SOURCE", Source)


def is_trace(path: str | Path) -> bool:
    """Whether the file begins like a trace of a known format, whatever its name."""
    path = Path(path)
    return path.is_file() and any(source.detect(path) for source in sources())


def read_trace(path: str | Path, reading: Reading = DEFAULTS) -> Trace:
    """The trace in this file. Raises InputError when the file is missing, of no known format,
    beyond repair, or too large for the memory that `reading` allows."""
    # A recording names its traces as they were written; stored ones may be gzipped since.
    path = next((p for p in (Path(path), Path(f"{path}.gz")) if p.is_file()), Path(path))
    if not path.is_file():
        raise InputError(f"no trace file at {path}")
    for source in sources():
        if source.detect(path):
            return source.read(path, reading)
    raise not_a_trace(path)


def not_a_trace(path: Path) -> InputError:
    """The error for a file of no known format; it says what to do where that is known."""
    if path.suffix in (".nsys-rep", ".qdrep"):
        return InputError(
            f"{path} is a report of Nsight Systems itself",
            hint=f"nsys export --type sqlite {shlex.quote(str(path))}, then name the .sqlite file",
        )
    if path.is_file() and not path.stat().st_size:
        return InputError(f"{path} is empty, so it is not a trace", hint="record the trace again")
    if path.suffix == ".py":
        return InputError(
            f"{path} is a script, not a trace",
            hint=f"launchscope profile {shlex.quote(str(path))} measures it",
        )
    return InputError(
        f"{path} is not a trace that launchscope can read",
        hint=f"known trace formats: {', '.join(source.name for source in sources())}",
    )


def too_large(path: Path, read: str, limit: int) -> InputError:
    """The error of a reader whose columns exceed `reading.limit()`; `read`: how far it got."""
    return InputError(
        f"{path} does not fit in the memory that may be used: {read}, its events fill "
        f"{limit / 1e6:,.0f} MB, and analyzing them takes {_ANALYSIS} times that",
        hint="a trace of fewer steps gives the same figures",
    )


def usable_memory() -> int:
    """Half of what is free, in bytes."""
    return free_memory() // 2
