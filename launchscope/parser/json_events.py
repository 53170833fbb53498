"""Cuts Chrome-trace JSON into lists of its events, block by block.

A block is cut at what looks like the last place between two events. Decoding shows whether it is
one, because a list that is cut elsewhere does not end. What cannot be decoded so, as the end of
every file, is cut at all such places, and decoded event by event.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain

# No event is as long as this: a file without an event for so many bytes is not a trace.
MAX_EVENT = 16 << 20

_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_SPACE = b"\xef\xbb\xbf \t\r\n"
_BETWEEN = re.compile(rb"(?<=\})\s*,\s*(?=\{)")
_NEAR = 4096  # bytes from the end of a block


class BeyondRepairError(Exception):
    """There are no events in the file, or none for too long; the message says where."""


class Events:
    """Hands over the events of one file, and stops after every block of it.

    `take` gets most of them as JSON lists, and says whether it could decode one. `repair` gets the
    others, each by itself, and gives what follows the list of events if it ends there, or None.
    `head` and `tail` surround the list; `complete`: it ends.
    """

    def __init__(
        self,
        blocks: Iterator[bytes],
        take: Callable[[bytes], bool],
        repair: Callable[[list[bytes]], bytes | None],
    ) -> None:
        self._blocks = self._counted(blocks)
        self._take = take
        self._repair = repair
        self.head = b""
        self.tail = b""
        self.complete = False
        self.bytes_read = 0

    def __iter__(self) -> Iterator[None]:
        first, data = self._begin(), b""
        for block in chain((first,), self._blocks):
            if self.complete:
                if len(self.tail) < MAX_EVENT >> 2:
                    self.tail += block
                continue
            end, begin = _last_boundary(block)
            if end and self._take(b"".join((b"[", data, memoryview(block)[:end], b"]"))):
                data = block[begin:]
            else:
                data += block
                if end:
                    *pieces, data = _BETWEEN.split(data)
                    data = self._rest(pieces, data)
                self._bounded(data)
            yield
        if not self.complete:
            # What is left is the last event, or all that there is, and the end of the file.
            self._rest(_BETWEEN.split(data), b"")

    def _rest(self, pieces: list[bytes], data: bytes) -> bytes:
        """The data behind these pieces of it, if the list goes on there."""
        tail = self._repair(pieces)
        if tail is None:
            return data
        self.complete, self.tail = True, b",".join(filter(None, (tail, data)))
        return b""

    def _counted(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        for block in blocks:
            self.bytes_read += len(block)
            yield block

    def _begin(self) -> bytes:
        """Reads up to the list of events; returns what follows of the last block."""
        data = b""
        for block in self._blocks:
            data += block
            if data.lstrip(_SPACE)[:1] == b"[":
                return data[data.index(b"[") + 1 :]
            if found := _ARRAY.search(data):
                self.head = data[: found.end()]
                return data[found.end() :]
            self._bounded(data)
        raise BeyondRepairError("it has no list of events")

    def _bounded(self, rest: bytes) -> None:
        if len(rest) > MAX_EVENT:
            raise BeyondRepairError(
                f"{MAX_EVENT >> 20} MiB before byte {self.bytes_read:,} hold no end of an event"
            )


def _last_boundary(data: bytes) -> tuple[int, int]:
    """Where the last event ends that another one follows, and where that one begins, as far as one
    can tell without decoding; 0 if there is none in this block."""
    for near in (max(len(data) - _NEAR, 0), 0):
        found = list(_BETWEEN.finditer(data, near))
        if found:
            return found[-1].span()
    return 0, 0
