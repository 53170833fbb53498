"""A Profile from whatever file a person names, told by its content; many of them in parallel."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launchscope.errors import InputError, LaunchscopeError

if TYPE_CHECKING:
    from launchscope.model import Profile
    from launchscope.model.ranks import RankRow

RECORDING = "recording.json"
_RANK = re.compile(r"rank[-_ ]?(\d+)", re.IGNORECASE)
# Below this, starting processes takes longer than reading.
_WORTH_PROCESSES = 30e6


@dataclass(frozen=True)
class ReadOptions:
    """How files are to be read. What is None was not asked for on the command line."""

    threshold: float
    expected_steps: int | None
    step_from: str = "auto"
    step_range: str | None = None
    memory_bytes: int | None = None
    weigh_anew: bool = False  # a saved Profile's verdict is made again


def profile_of(path: Path, asked: ReadOptions) -> Profile:
    """The Profile of a recording, a trace or a saved Profile, with its verdict.

    Raises InputError when the file is none of them or cannot be read.
    """
    check_readable(path)
    if is_recording(path):
        return profile_of_recording(path, asked.threshold, asked.expected_steps)
    from launchscope.parser import is_trace

    if is_trace(path):
        return _of_trace(path, asked)
    return _saved(path, asked)


def check_readable(path: Path) -> None:
    """InputError unless there is such a file or folder. Reading a pipe or a device would wait
    for what may never come, and a file is read from its beginning more than once."""
    if not path.exists():
        raise InputError(f"{path}: no such file or directory")
    if not path.is_file() and not path.is_dir():
        raise InputError(
            f"{path} is a pipe or a device, not a file",
            hint="write what comes out of it into a file, and name that",
        )


def profile_of_recording(path: Path, threshold: float, expected_steps: int | None) -> Profile:
    """Recording -> Profile with its verdict."""
    from launchscope.analysis import build_profile
    from launchscope.parser import read_recording
    from launchscope.rules import advise

    recording = read_recording(path)
    return advise(build_profile(recording, threshold_pct=threshold, expected_steps=expected_steps))


def _of_trace(path: Path, asked: ReadOptions) -> Profile:
    from launchscope.analysis import profile_of_trace
    from launchscope.parser import Reading, read_trace
    from launchscope.rules import advise

    trace = read_trace(path, Reading(op_names=False, memory_bytes=asked.memory_bytes))
    try:
        profile = profile_of_trace(
            trace,
            path.name,
            threshold_pct=asked.threshold,
            expected_steps=asked.expected_steps,
            step_from=asked.step_from,
            step_range=asked.step_range,
        )
    except InputError as error:
        if not trace.damage.any:
            raise InputError(f"{path}: {error}", hint=error.hint) from error
        raise InputError(
            f"{path}: {error} (the file is damaged: {trace.damage.text})",
            hint="copy the file again from where it was made, or record it again",
        ) from error
    return advise(profile)


def _saved(path: Path, asked: ReadOptions) -> Profile:
    """A saved Profile; weighed anew only when a flag changes what it is weighed by."""
    from launchscope.parser import read_profile
    from launchscope.parser.sources import not_a_trace
    from launchscope.rules import advise

    if not _says_launchscope(path):
        raise not_a_trace(path)
    profile = read_profile(path)
    if asked.weigh_anew:
        profile = replace(
            profile,
            threshold_pct=asked.threshold,
            expected_steps=asked.expected_steps or profile.expected_steps,
            verdict=None,
        )
    return advise(profile) if profile.verdict is None else profile


def is_recording(path: Path) -> bool:
    """Folders that hold one, and a file that says it is one."""
    if path.is_dir():
        return (path / RECORDING).exists()
    return path.is_file() and (path.name == RECORDING or b'"launchscope/recording/' in _ends(path))


def saved_as(path: Path) -> str | None:
    """Of a file that a report was saved to, what it is a report of; None for anything else."""
    from launchscope.parser import SAVED

    ends = _ends(path) if path.is_file() else b""
    return next((noun for noun in SAVED if f'"launchscope/{noun}/'.encode() in ends), None)


def _says_launchscope(path: Path) -> bool:
    return b'"launchscope/' in _ends(path)


def _ends(path: Path) -> bytes:
    """The first and the last bytes, where a schema stands."""
    try:
        with path.open("rb") as file:
            head = file.read(4096)
            file.seek(max(0, path.stat().st_size - 4096))
            return head + file.read()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


# --------------------------------------------------------------------------- many


def files_in(folder: Path) -> list[Path]:
    """Traces, Profiles and recordings that lie in a folder, by name; InputError if none do."""
    from launchscope.parser import is_trace

    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"cannot read {folder}: {error.strerror or error}") from error
    found = [
        entry
        for entry in entries
        if is_recording(entry) or (entry.is_file() and (is_trace(entry) or _is_profile(entry)))
    ]
    if not found:
        raise InputError(
            f"{folder} holds no recording, no trace and no Profile",
            hint="name the folder that profile --keep-trace made, or the one with the traces",
        )
    return found


def _is_profile(path: Path) -> bool:
    return b'"launchscope/profile/' in _ends(path)


def rank_of(path: Path, asked: ReadOptions) -> RankRow:
    """One file as a row of the ranks' table. A file that cannot be read is a row that says so."""
    from launchscope.analysis.comparison.ranks import rank_row
    from launchscope.model.ranks import RankRow

    named = _RANK.search(path.name) or _RANK.search(path.resolve().parent.name)
    try:
        row = rank_row(profile_of(path, asked), path.name)
    except LaunchscopeError as error:
        row = RankRow(path.name, problem=str(error))
    if row.rank is None and named is not None:
        row = replace(row, rank=int(named.group(1)))
    return row


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """The files' names, with as much of their folders as tells them apart."""
    resolved = [path.resolve() for path in paths]
    names = [path.name for path in resolved]
    for depth in range(2, max(len(path.parts) for path in resolved) + 1):
        if len(set(names)) == len(set(resolved)):
            break
        names = [str(Path(*path.parts[-depth:])) for path in resolved]
    return names


def each(
    work: Callable[[Path, ReadOptions], Any],
    paths: Sequence[Path],
    asked: ReadOptions,
    done: Callable[[Path], None],
) -> list[Any]:
    """`work` on every file, in as many processes as there are cores; results in their order.

    The memory that may be used is shared out among them. `done` is told of each file read.
    """
    size = sum(path.stat().st_size for path in paths if path.is_file())
    workers = min(len(paths), os.cpu_count() or 1)
    if workers < 2 or size < _WORTH_PROCESSES:
        results = []
        for path in paths:
            results.append(work(path, asked))
            done(path)
        return results
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    share = replace(asked, memory_bytes=_share(asked.memory_bytes, workers))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        running = [pool.submit(work, path, share) for path in paths]
        try:
            results = []
            for path, future in zip(paths, running):
                results.append(future.result())
                done(path)
        except BaseException:  # Ctrl-C too: files that were not begun are not begun any more
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return results


def _share(memory_bytes: int | None, workers: int) -> int:
    from launchscope.parser.sources import usable_memory

    return (memory_bytes or usable_memory()) // workers
