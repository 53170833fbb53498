"""What every layer asks of the host: free memory, and files that are written whole."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

# The folder or the file is not ours, or the file is a mount point. EINVAL: its owner is
# unknown in this container.
_NOT_REPLACEABLE = (
    errno.EACCES, errno.EPERM, errno.EBUSY, errno.EROFS, errno.EINVAL, errno.ENOTSUP, errno.ENOSYS,
)  # fmt: skip


@dataclass(frozen=True)
class Blocks:
    """Content that may be too large for the memory, made each time that somebody iterates."""

    make: Callable[[], Iterator[bytes]]

    def __iter__(self) -> Iterator[bytes]:
        return self.make()


def working_directory() -> str:
    """Its absolute path; where it was, as far as that is known, if it is gone."""
    try:
        return os.getcwd()
    except OSError:
        return os.environ.get("PWD", os.sep)


@functools.cache
def holds_packages(folder: str) -> bool:
    """Whether an installer has put packages there: it leaves their metadata beside them."""
    with contextlib.suppress(OSError):
        return any(name.endswith(".dist-info") for name in os.listdir(folder))
    return False


def free_memory() -> int:
    """Bytes that can be had without swapping; where that is unknown, what the machine has."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError, AttributeError):
        return 8 << 30


def write_whole(path: Path, content: bytes | Blocks, *, mode: int = 0o666) -> None:
    """Writes a file through a neighbor that then takes its name: readers never see half of it.

    A symbolic link stays: the file it leads to is written. An existing file keeps its owner, group
    and permissions, but no bit that lets it run as somebody else; one that must not be written
    stays as it is. A pipe or a device is written to, and so is a file that cannot be replaced (a
    mount point, or what belongs to others). `mode`: permissions of a new file, less those that the
    umask takes. Raises OSError; the neighbor is removed then.
    """
    place, before = _place_of(path)
    if before is not None and not stat.S_ISREG(before.st_mode):
        _write_into(path, content)
        return
    try:
        _replace(place, content, before, mode)
    except OSError as error:
        if before is None or error.errno not in _NOT_REPLACEABLE:
            raise
        _write_into(path, content)


def require_room_beside(path: Path) -> None:
    """OSError unless `write_whole` can write at this path."""
    place, before = _place_of(path)
    if before is not None and not stat.S_ISREG(before.st_mode):
        return
    try:
        neighbor, descriptor = _neighbor(place, 0o600)
    except OSError as error:
        if before is None or error.errno not in _NOT_REPLACEABLE:
            raise
        return
    os.close(descriptor)
    neighbor.unlink()


def _place_of(path: Path) -> tuple[Path, os.stat_result | None]:
    """Where links lead to, and what is there. OSError for links in a circle, for a name that is too
    long, for a file that must not be written, and for a disk or a socket."""
    place = Path(os.path.realpath(path))
    try:
        before = path.stat()
    except FileNotFoundError:
        return place, None
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
    if stat.S_ISBLK(before.st_mode) or stat.S_ISSOCK(before.st_mode):
        raise OSError(errno.EINVAL, "it is not a file", os.fspath(path))
    return place, before


def _write_into(path: Path, content: bytes | Blocks) -> None:
    with path.open("wb") as file:
        file.writelines([content] if isinstance(content, bytes) else content)


def _replace(path: Path, content: bytes | Blocks, before: os.stat_result | None, mode: int) -> None:
    # Nobody else may open it before it has the owner and permissions of the file it replaces.
    neighbor, descriptor = _neighbor(path, mode if before is None else 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if before is not None:
                made = os.fstat(descriptor)
                if (made.st_uid, made.st_gid) != (before.st_uid, before.st_gid):
                    os.fchown(descriptor, before.st_uid, before.st_gid)
                os.fchmod(descriptor, before.st_mode & 0o777)
            file.writelines([content] if isinstance(content, bytes) else content)
        neighbor.replace(path)
    except BaseException:  # Ctrl-C too leaves no half-written neighbor behind
        with contextlib.suppress(OSError):
            neighbor.unlink()
        raise


def _neighbor(path: Path, mode: int) -> tuple[Path, int]:
    """A new file beside it and its descriptor. Nobody can guess its name and put a link there."""
    neighbor = path.with_name(f".launchscope-{os.urandom(8).hex()}.tmp")
    return neighbor, os.open(neighbor, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
