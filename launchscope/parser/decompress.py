"""A file as a stream of decompressed blocks, in bounded memory.

gzip is inflated in a thread of its own, while the reader works on the block before. ISA-L's
inflate is used where the `isal` package is installed: on the traces of sample_workloads it wrote
4.2 GB/s on one core, zlib-ng 3.2 and zlib 1.3.
"""

from __future__ import annotations

import queue
import threading
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from launchscope.errors import InputError

inflate: Any
try:
    from isal import isal_zlib as inflate
except ImportError:  # no wheel for this platform: the standard library reads the same
    inflate = zlib

__all__ = ["BLOCK", "beginning", "blocks"]

BLOCK = 4 << 20  # of decompressed bytes
_PACKED = 1 << 18  # read from a gzip file at once
_AHEAD = 3  # blocks that the inflating thread may be ahead
_GZIP = b"\x1f\x8b"
# Trace JSON shrinks to a tenth or a fortieth. What grows more than this is no trace.
MOST_GROWTH, ALWAYS_ALLOWED = 200, 1 << 30

_UNREADABLE: tuple[type[Exception], ...] = (OSError, EOFError, zlib.error, inflate.error)
_BROKEN: tuple[type[Exception], ...] = (EOFError, zlib.error, inflate.error)


def beginning(path: Path, size: int = 1 << 16) -> bytes:
    """The first decompressed bytes of the file; empty when it cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(size)
        if not head.startswith(_GZIP):
            return head
        return bytes(inflate.decompressobj(wbits=31).decompress(head, size))
    except _UNREADABLE:
        return b""


def blocks(path: Path, repairs: list[str]) -> Iterator[bytes]:
    """The file's content, block by block. A gzip stream that breaks off is read up to there,
    and `repairs` says so. Raises InputError when the file cannot be read, or is a gzip file
    that grows beyond what a trace does."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
            file.seek(0)
            if not packed:
                while block := file.read(BLOCK):
                    yield block
                return
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    with closing(_in_thread(_inflated(path, repairs))) as unpacked:
        yield from unpacked


def _inflated(path: Path, repairs: list[str]) -> Iterator[bytes]:
    read = written = 0
    whole = False
    stream = inflate.decompressobj(wbits=31)
    with path.open("rb") as file:
        try:
            while data := file.read(_PACKED):
                read += len(data)
                while data:
                    if whole:
                        # Several gzip streams in a row are one file, padding zeros aside.
                        data = data.lstrip(b"\0")
                        if not _GZIP.startswith(data[:2]):
                            repairs.append("what follows the gzip stream ignored")
                            return
                        if not data:
                            break
                    block = stream.decompress(data, BLOCK)
                    data = stream.unconsumed_tail
                    whole = stream.eof
                    if whole:
                        data = stream.unused_data
                        stream = inflate.decompressobj(wbits=31)
                    written += len(block)
                    if written > max(ALWAYS_ALLOWED, MOST_GROWTH * read):
                        raise InputError(
                            f"{path} grows more than {MOST_GROWTH} times when it is decompressed; "
                            f"stopped after {written / 1e9:.1f} GB",
                            hint="if it is a trace all the same, decompress it first (gunzip)",
                        )
                    if block:
                        yield block
        except _BROKEN:
            whole = False
    if not whole:
        repairs.append("the gzip stream ends early")


def _in_thread(source: Iterator[bytes]) -> Generator[bytes, None, None]:
    """The same items, made in a thread that may be a few ahead."""
    made: queue.Queue[bytes | BaseException | None] = queue.Queue(_AHEAD)
    stop = threading.Event()

    def put(item: bytes | BaseException | None) -> bool:
        while not stop.is_set():
            try:
                made.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for item in source:
                if not put(item):
                    return
            put(None)
        except BaseException as error:
            put(error)

    thread = threading.Thread(target=work, name="inflate", daemon=True)
    thread.start()
    try:
        while (item := made.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        thread.join()
