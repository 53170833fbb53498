"""Temporary folders that outlive a killed launchscope only until the next one makes its own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "launchscope-"
# A file that the owner of the folder holds locked. The kernel releases it, however the owner ends.
# The folder's name is in it, as nobody else would write it.
_OWNER = "owner.lock"


class TemporaryFolder:
    """A new folder, until `remove`. Raises OSError if there is no room for one."""

    def __init__(self) -> None:
        _remove_abandoned()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock: int | None = None
        with contextlib.suppress(OSError):  # a file system without locks
            unnamed = self.path / f"new-{_OWNER}"
            self._lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(self._lock, os.fsencode(self.path.name))
            unnamed.rename(self.path / _OWNER)  # nobody sees it without its lock

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    folder = TemporaryFolder()
    try:
        yield folder.path
    finally:
        folder.remove()


def _remove_abandoned() -> None:
    """Remove our user's folders whose owner is gone; those without our lock may be anybody's."""
    for folder in Path(tempfile.gettempdir()).glob(PREFIX + "[a-z0-9_]" * 8):  # as mkdtemp's
        with contextlib.suppress(OSError):
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                continue
            lock = os.open(folder / _OWNER, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.read(lock, 99) == os.fsencode(folder.name):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
