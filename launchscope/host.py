"""What every layer asks of the host: free memory, and files that are written whole."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def free_memory() -> int:
    """Bytes that can be had without swapping; where that is unknown, what the machine has."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError, AttributeError):
        return 8 << 30


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file through a neighbor that then takes its name: readers never see half of it.

    Raises OSError; the neighbor is removed then, so that it takes no room from other files.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
