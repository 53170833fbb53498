"""Temporary folders of a command."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "launchscope-"


class TemporaryFolder:
    """A new folder, until `remove`. Raises OSError if there is no room for one."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    folder = TemporaryFolder()
    try:
        yield folder.path
    finally:
        folder.remove()
