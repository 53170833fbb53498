"""Reads what a person names: a saved report, a recording, traces; recognized by content."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import repeat
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from launchscope.analysis import build_profile, profile_of_trace
from launchscope.analysis.comparison.profiles import difference
from launchscope.analysis.comparison.ranks import rank_row, ranks_of
from launchscope.analysis.timeline.work import OnWork
from launchscope.errors import InputError, LaunchscopeError, UsageError, raised_as
from launchscope.model import Profile, Ranks, Recording
from launchscope.model.ranks import RankRow
from launchscope.parser import (
    SAVED,
    Reading,
    is_trace,
    read_profile,
    read_recording,
    read_saved,
    read_trace,
)
from launchscope.parser.files import Saved
from launchscope.parser.sources import not_a_trace
from launchscope.rules import advise, with_current_codes
from launchscope.workflows.progress import Progress

RECORDING = "recording.json"
# Bytes from which starting processes is worth it, and the most of them: each holds a file.
_WORTH_PROCESSES, _MOST_PROCESSES = 30e6, 4
_SCHEMA = re.compile(rb'"launchscope/(\w+)/')
_RANK = re.compile(r"rank[-_ ]?(\d+)", re.IGNORECASE)
Value = Profile | Saved
# A path may be too long, or in a closed folder.
_REACHABLE = raised_as(InputError, "cannot read", names_file=True)


class ReadOptions(Struct, frozen=True):
    """How files are read. `reweigh`: a saved Profile gets a new verdict. `details`: a trace's
    Profile says what launched its work and holds its timeline, which takes longer. `given`: the
    options that a person chose, for error messages. `on_work` gets what a Profile is made of, as
    in `profile_of_trace`."""

    threshold: float
    expected_steps: int | None
    step_from: str = "auto"
    step_range: str | None = None
    reweigh: bool = False
    details: bool = False
    given: tuple[str, ...] = ()
    on_work: OnWork | None = None


@_REACHABLE
def read_input(paths: Sequence[Path], options: ReadOptions, progress: Progress) -> Value:
    """One path is a Profile (or another report that was saved), two are a Difference, and a folder
    of files or more than two are Ranks, or a table of files where nothing says that they are.
    Raises InputError for what cannot be read, UsageError for options that do not apply."""
    for path in paths:
        check_readable(path)
    first = paths[0]
    if len(paths) == 1 and first.is_dir() and not is_recording(first):
        return _ranks(files_in(first), options, progress)
    if len(paths) > 2:
        return _ranks(paths, options, progress)
    if len(paths) == 2:
        before, after = (profile_of(path, options) for path in paths)
        return difference(before, after, (str(paths[0]), str(paths[1])))
    noun = _schema(first) if first.is_file() else None
    for option in options.given:
        if noun in SAVED or (is_recording(first) and option.startswith("--step")):
            what = noun or "recording, whose steps were found while the script ran"
            raise UsageError(
                f"{option} does not apply to {first}, which is a {what}", hint="leave it out"
            )
    if noun in SAVED:
        return read_saved(first, SAVED[noun])
    return profile_of(first, options)


@_REACHABLE
def profile_of(path: Path, options: ReadOptions) -> Profile:
    """The Profile of a recording, a trace or a saved Profile, with its verdict; InputError when the
    file is none of them or cannot be read."""
    check_readable(path)
    if is_recording(path):
        recording = read_recording(path)
        return analyze(recording, options.threshold, options.expected_steps, options.on_work)
    if is_trace(path):
        return _of_trace(path, options)
    return _saved(path, options)


def analyze(
    recording: Recording,
    threshold: float,
    expected_steps: int | None,
    on_work: OnWork | None = None,
) -> Profile:
    """The Profile of a recording, with its verdict."""
    return advise(
        build_profile(
            recording, threshold_pct=threshold, expected_steps=expected_steps, on_work=on_work
        )
    )


def check_readable(path: Path) -> None:
    """InputError unless there is such a file or folder. A pipe or a device could block forever,
    and a file is read from its beginning more than once."""
    if not path.exists():
        raise InputError(f"{path}: no such file or directory")
    if not path.is_file() and not path.is_dir():
        raise InputError(
            f"{path} is a pipe or a device, not a file",
            hint="write its output to a file and name that",
        )


def _of_trace(path: Path, options: ReadOptions) -> Profile:
    trace = read_trace(path, Reading(op_names=options.details))
    try:
        profile = profile_of_trace(
            trace,
            path.name,
            threshold_pct=options.threshold,
            expected_steps=options.expected_steps,
            step_from=options.step_from,
            step_range=options.step_range,
            details=options.details,
            on_work=options.on_work,
        )
    except InputError as error:
        if not trace.damage.any:
            raise InputError(f"{path}: {error}", hint=error.hint) from error
        raise InputError(
            f"{path}: {error} (the file is damaged: {trace.damage.text})",
            hint="copy the file again from where it was made, or record it again",
        ) from error
    return advise(profile)


def _saved(path: Path, options: ReadOptions) -> Profile:
    if _schema(path) is None:
        raise not_a_trace(path)
    profile = with_current_codes(read_profile(path))
    if options.reweigh:
        profile = replace(
            profile,
            threshold_pct=options.threshold,
            expected_steps=options.expected_steps or profile.expected_steps,
            verdict=None,
        )
    return advise(profile) if profile.verdict is None else profile


def is_recording(path: Path) -> bool:
    """Whether a folder holds a recording, or a file is one."""
    if path.is_dir():
        return (path / RECORDING).exists()
    return path.is_file() and (path.name == RECORDING or _schema(path) == "recording")


def _schema(path: Path) -> str | None:
    """The noun of a file's launchscope schema ("profile", "comparison", ...), which is among the
    first or the last bytes; None without one."""
    with raised_as(InputError, f"cannot read {path}"), path.open("rb") as file:
        head = file.read(4096)
        file.seek(max(0, path.stat().st_size - 4096))
        found = _SCHEMA.search(head) or _SCHEMA.search(file.read())
    return found[1].decode() if found else None


# ------------------------------------------------------------------------ several files


def _ranks(paths: Sequence[Path], options: ReadOptions, progress: Progress) -> Ranks:
    options = replace(options, on_work=None, details=False)  # no row needs them
    shared = os.path.commonpath([path.resolve().parent for path in paths])
    names = [os.path.relpath(path.resolve(), shared) for path in paths]
    rows: list[RankRow] = []
    for name, row in zip(names, _rows(paths, options)):
        rows.append(replace(row, name=name))
        progress.reading(len(rows), len(paths))
    if all(row.problem is not None for row in rows):
        raise InputError(
            f"none of the {len(paths)} files could be read: {rows[0].problem}",
            hint="launchscope report FILE shows what is wrong with one file",
        )
    return ranks_of(rows)


@_REACHABLE
def files_in(folder: Path) -> list[Path]:
    """What a folder holds of traces, Profiles and recordings, by name; InputError if it holds
    none."""
    found = [
        entry
        for entry in sorted(folder.iterdir())
        if is_recording(entry)
        or (entry.is_file() and (is_trace(entry) or _schema(entry) == "profile"))
    ]
    if not found:
        raise InputError(
            f"{folder} holds no recording, no trace and no Profile",
            hint="name the folder that profile --keep-trace made, or the one with the traces",
        )
    return found


def _rows(paths: Sequence[Path], options: ReadOptions) -> Iterator[RankRow]:
    """In the order of the files. Large ones are read side by side."""
    size = sum(path.stat().st_size for path in paths if path.is_file())
    workers = min(len(paths), os.cpu_count() or 1, _MOST_PROCESSES)
    if workers < 2 or size < _WORTH_PROCESSES:
        yield from (_row(path, options) for path in paths)
        return
    from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
    from multiprocessing import get_context

    # Forks import nothing, and so no file of the working directory.
    with ProcessPoolExecutor(workers, get_context("fork")) as pool:
        try:
            yield from pool.map(_row, paths, repeat(options))
        except BrokenExecutor:
            hint = "if memory ran out, name fewer files"
            raise InputError("a process that read the files was killed", hint=hint) from None


def _row(path: Path, options: ReadOptions) -> RankRow:
    """A file as a row of Ranks, without a name. If the file cannot be read, the row says why."""
    try:
        row = rank_row(profile_of(path, options), "")
    except LaunchscopeError as error:
        row = RankRow("", problem=str(error))
    named = _RANK.search(path.name) or _RANK.search(path.resolve().parent.name)
    if row.rank is None and named is not None:
        row = replace(row, rank=int(named.group(1)))
    return row
