"""Writes the buffers of a script's open files to disk.

Python closes every open file when it ends normally; `os._exit`, a crash and a signal close none.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import stat
import sys
from typing import Any, NoReturn

_ARCHIVES = (("gzip", "GzipFile"), ("bz2", "BZ2File"), ("lzma", "LZMAFile"))


def flush_files() -> None:
    """Flush the standard streams and every regular file that is open for writing, and close
    archives, which are complete only then. Pipes and sockets are left out: if nobody reads from
    them, the process would never end."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # it may be None, closed or a class of the script
            stream.flush()
    archives = tuple(getattr(sys.modules[m], name) for m, name in _ARCHIVES if m in sys.modules)
    # Text files write to archives and archives to plain files: each passes on what it holds.
    layers = ((io.TextIOWrapper,), archives, (io.BufferedWriter, io.BufferedRandom))
    kinds = tuple(kind for layer in layers for kind in layer)
    files: list[Any] = [found for found in gc.get_objects() if issubclass(type(found), kinds)]
    for layer in layers:
        for file in files:
            with contextlib.suppress(Exception):
                if isinstance(file, layer) and stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    file.flush()
                    if layer is archives:
                        file.close()


def leave_at_once() -> NoReturn:
    """End the process without running destructors: after a failed capture they may abort."""
    gc.unfreeze()  # objects that the script has frozen are not listed otherwise
    flush_files()
    os._exit(0)
