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
from collections.abc import Callable
from typing import Any

from launchscope.runner.child.plain_values import objects_of

_ARCHIVES = (("gzip", "GzipFile"), ("bz2", "BZ2File"), ("lzma", "LZMAFile"))


def flush_files(
    *,
    close_archives: bool,
    on_class: Callable[[type], None] = lambda kind: None,
    others: tuple[type, ...] = (),
    on_other: Callable[[Any], None] = lambda found: None,
) -> bool:
    """Flush the standard streams and every regular file that is open for writing. Archives are
    complete only once they are closed, but then nothing more can be written to them. Where they are
    not, Python's own end closes them, and also the files of other classes than Python's own: these
    are left alone, because a method of the script would run once more, and an archive would hold a
    mark where it was flushed.

    Pipes and sockets are left out: if nobody reads from them, the process would never end. False if
    such a file may hold something, or one could not be flushed. `on_class` gets each class of which
    there are objects, `on_other` each object of the classes `others`.
    """
    standard = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    own = {id(part) for stream in standard for part in (stream, _buffer_of(stream))}
    for stream in standard:
        with contextlib.suppress(Exception):  # it may be None, closed or a class of the script
            stream.flush()  # type: ignore[union-attr]
    archives = tuple(getattr(sys.modules[m], name) for m, name in _ARCHIVES if m in sys.modules)
    # Text files write to archives and archives to plain files: each passes on what it holds.
    layers: tuple[Any, ...] = (
        (io.TextIOWrapper,),
        archives,
        (io.BufferedWriter, io.BufferedRandom),
    )
    kinds = tuple(kind for layer in layers for kind in layer)
    if close_archives:
        # Objects that a script has frozen are not listed otherwise. Where Python still ends by
        # itself they stay frozen: it runs no finalizer of those.
        gc.unfreeze()

    def is_file(kind: type) -> bool:
        on_class(kind)
        return kind in others or issubclass(kind, kinds)

    files: list[Any] = []
    for found in objects_of(is_file):
        if type(found) in others:
            on_other(found)
        else:
            files.append(found)
    unflushed = set()
    for layer in layers:
        for file in files:
            if isinstance(file, layer):
                unflushed.add(id(file))
                with contextlib.suppress(Exception):
                    if _only_reads(file):
                        unflushed.discard(id(file))
                        continue
                    if not close_archives and not _is_plain(file):
                        continue
                    if file.closed or not file.writable():
                        unflushed.discard(id(file))
                    elif stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                        file.flush()
                        if layer is archives and close_archives:
                            file.close()
                        unflushed.discard(id(file))
    return unflushed <= own


def _only_reads(file: Any) -> bool:
    """Whether a text file of Python's own, standard input above all, has nothing to write to."""
    return type(file) is io.TextIOWrapper and type(file.buffer) is io.BufferedReader


def _is_plain(file: Any) -> bool:
    """Whether a file and all that it writes to are of Python's own classes for regular files."""
    while type(file) is not io.FileIO:
        if type(file) is io.TextIOWrapper:
            file = file.buffer
        elif type(file) is io.BufferedWriter or type(file) is io.BufferedRandom:
            file = file.raw
        else:
            return False
    return True


def _buffer_of(stream: Any) -> object:
    """That of a stream of Python's own."""
    return stream.buffer if type(stream) is io.TextIOWrapper else None
