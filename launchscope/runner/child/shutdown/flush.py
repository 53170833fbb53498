"""Puts on disk what a script has written, before its process ends with `os._exit`.

Python closes every open file when it ends normally. `os._exit` closes none, and what is still
in their buffers would be lost.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import stat
import sys
from typing import Any

# Writers of an archive: without its last block it cannot be read, so they are closed.
_ARCHIVES = (("gzip", "GzipFile"), ("bz2", "BZ2File"), ("lzma", "LZMAFile"))


def flush_files() -> None:
    """Flush the standard streams and every regular file that is open for writing.

    Pipes and sockets are left alone: nobody may be reading from them any more, and the process
    would never end.
    """
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        with contextlib.suppress(Exception):  # it may be None, closed or a class of the script
            stream.flush()  # type: ignore[union-attr]
    archives = tuple(getattr(sys.modules[m], name) for m, name in _ARCHIVES if m in sys.modules)
    # Text files write to archives and archives to plain files: each passes on what it holds.
    layers: tuple[tuple[type, ...], ...] = (
        (io.TextIOWrapper,),
        archives,
        (io.BufferedWriter, io.BufferedRandom),
    )
    kinds = tuple(kind for layer in layers for kind in layer)
    gc.unfreeze()  # objects that a script has frozen are not listed otherwise
    # type(), as isinstance() would ask the script's objects for their __class__.
    files: list[Any] = [found for found in gc.get_objects() if issubclass(type(found), kinds)]
    for layer in layers:
        for file in files:
            if issubclass(type(file), layer):
                with contextlib.suppress(Exception):
                    _flush(file, issubclass(type(file), archives))


def _flush(file: Any, is_archive: bool) -> None:
    if not file.writable() or not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return
    file.flush()
    if is_archive:
        file.close()
