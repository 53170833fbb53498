"""Cuts Chrome-trace JSON into the bytes of its events, block by block.

Kineto puts each event on lines of its own with two spaces before its braces. A JSON string
holds no line break, so its events can be split at those lines. Any other layout goes
through a scan of quotes and brackets; so does the end of every file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

import numpy as np

# No event is as long as this: a file without an event for so many bytes is no trace.
MAX_EVENT = 16 << 20

_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_AGAIN = b'"traceEvents"'  # a second document
_SPACE = b"\xef\xbb\xbf \t\r\n"
_BETWEEN = b"\n  },\n  {"  # events of Kineto
_FIRST = b"\n  {\n    "

_QUOTE, _OPEN, _CLOSE = 1, 2, 3
_CLASS = np.zeros(256, np.uint8)
_CLASS[ord('"')] = _QUOTE
_CLASS[[ord("{"), ord("[")]] = _OPEN
_CLASS[[ord("}"), ord("]")]] = _CLOSE


class BeyondRepairError(Exception):
    """There are no events in the file, or none for too long; the message says where."""


class Events:
    """The events of one file as lists of bytes, each a JSON object without its outer braces. `head`
    and `tail` surround the list; `strays` counts items that are no objects; `complete`: it ends."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = self._counted(blocks)
        self.head = b""
        self.tail = b""
        self.strays = 0
        self.complete = False
        self.kineto_layout = False
        self.bytes_read = 0

    def __iter__(self) -> Iterator[list[bytes]]:
        data = self._begin()
        self.kineto_layout = data.startswith(_FIRST)
        if self.kineto_layout:
            data = data[len(_FIRST) - 5 :]
            for block in chain((b"",), self._blocks):
                data += block
                if _AGAIN in data:  # the scan finds where the first list ends
                    break
                pieces = data.split(_BETWEEN)
                data = self._bounded(pieces.pop())
                yield pieces
            # What is left is the last event, or all that there is, and the end of the file.
            data = b"{" + data
        yield from self._scanned(data)

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
            found = _ARRAY.search(data)
            if found is not None and found.end() + len(_FIRST) <= len(data):
                break
            self._bounded(data)
        found = _ARRAY.search(data)
        if found is None:
            raise BeyondRepairError("it has no list of events")
        self.head = data[: found.end()]
        return data[found.end() :]

    def _bounded(self, rest: bytes) -> bytes:
        if len(rest) > MAX_EVENT:
            raise BeyondRepairError(
                f"{MAX_EVENT >> 20} MiB before byte {self.bytes_read:,} hold no end of an event"
            )
        return rest

    def _scanned(self, data: bytes) -> Iterator[list[bytes]]:
        """The scan of quotes and brackets. `data` begins between two events."""
        for block in chain((b"",), self._blocks):
            if self.complete:
                if len(self.tail) < MAX_EVENT >> 2:
                    self.tail += block
                continue
            data += block
            pieces, through, closed, strays = _scan(data)
            self.strays += strays
            if closed:
                self.complete = True
                self.tail = data[through:]
                data = b""
            else:
                data = self._bounded(data[through:])
            yield pieces


def _scan(data: bytes) -> tuple[list[bytes], int, bool, int]:
    """Whole events of `data`, how far it was used, whether the list ended there, stray items."""
    # Escaped backslashes first: the last one of an even run does not escape the quote after it.
    text = np.frombuffer(data.replace(b"\\\\", b"__").replace(b'\\"', b"__"), np.uint8)
    kind = _CLASS[text]
    place = np.flatnonzero(kind)
    kind = kind[place]
    quote = place[kind == _QUOTE]
    bracket, sign = place[kind != _QUOTE], kind[kind != _QUOTE]
    outside = np.searchsorted(quote, bracket) % 2 == 0
    bracket, sign = bracket[outside], np.where(sign[outside] == _OPEN, 1, -1)
    depth = np.cumsum(sign)
    beyond = np.flatnonzero(depth < 0)
    closed = len(beyond) > 0
    if closed:
        end = int(bracket[beyond[0]])
        bracket, sign, depth = (part[: beyond[0]] for part in (bracket, sign, depth))
    opens = bracket[(sign > 0) & (depth == 1)]
    ends = bracket[(sign < 0) & (depth == 0)]
    opens = opens[: len(ends)]
    through = end if closed else int(ends[-1]) + 1 if len(ends) else 0
    inner = quote[quote < through]
    level = np.concatenate(([0], depth))[np.searchsorted(bracket, inner)]
    is_object = text[opens] == ord("{")
    strays = int((level == 0).sum()) // 2 + int((~is_object).sum())
    pairs = zip(opens[is_object].tolist(), ends[is_object].tolist())
    return [data[begin + 1 : stop] for begin, stop in pairs], through, closed, strays
