"""Recordings of the commands that run a script: the folder one lies in, and the run itself."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from launchscope.cli.console import Console
from launchscope.errors import MeasureError, UsageError
from launchscope.workflows.signals import held_back, ignore_further_signals

if TYPE_CHECKING:
    from launchscope.model import Schedule, Target
    from launchscope.runner.parent.session import Outcome, RunOptions


def record(
    target: Target, schedule: Schedule, options: RunOptions, directory: Path, screen: Console
) -> Outcome:
    """Run the target, with the progress on the screen."""
    from launchscope.cli.progress import Progress
    from launchscope.runner.parent import session

    try:
        outcome = session.record(target, schedule, options, directory, Progress(screen))
    finally:
        screen.clear_status()
    if outcome.interrupted:
        ignore_further_signals()
    return outcome


@contextlib.contextmanager
def recording_folder(target: Target, screen: Console, *, keep: bool) -> Iterator[Path]:
    """A new folder: a temporary one that is gone afterwards, or `train.launchscope`
    (`train-2.launchscope`, ...) here, which is kept."""
    folder: Path | None = None
    try:
        with held_back():
            folder = _kept_folder(target) if keep else temporary_folder()
        yield folder
    finally:
        if folder is not None and keep:
            screen.progress(f"kept the recording in {folder}")
        elif folder is not None:
            remove(folder)


def temporary_folder() -> Path:
    """A new one; MeasureError where there is no place for it."""
    try:
        return Path(tempfile.mkdtemp(prefix="launchscope-"))
    except OSError as error:
        raise MeasureError(
            f"no folder for the results can be made: {error.strerror or error}",
            hint="set TMPDIR to a folder with room that can be written",
        ) from error


def remove(folder: Path) -> None:
    """Take a temporary folder away, whatever signal comes meanwhile."""
    with held_back():
        shutil.rmtree(folder, ignore_errors=True)


def _kept_folder(target: Target) -> Path:
    stem = Path(target.name).stem if target.kind == "script" else target.name
    number = 1
    while True:
        folder = Path.cwd() / f"{stem}{'' if number == 1 else f'-{number}'}.launchscope"
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        except OSError as error:
            raise UsageError(
                f"--keep-trace: cannot make {folder}: {error.strerror or error}",
                hint="run from a folder that can be written",
            ) from error
        else:
            return folder
