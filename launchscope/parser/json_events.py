"""Cuts Chrome-trace JSON into the bytes of its events, block by block.

A block is cut at what looks like the last place between two events, whatever its layout: decoding
shows whether it is one, because a list that is cut elsewhere does not end. Where decoding fails,
events are cut one by one. Kineto puts each event on lines of its own with two spaces before its
braces. A JSON string holds no line break, so its events can be split at those lines. Any other
layout goes through a scan of quotes and brackets; so does the end of every file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain

import numpy as np

# No event is as long as this: a file without an event for so many bytes is not a trace.
MAX_EVENT = 16 << 20

_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_SPACE = b"\xef\xbb\xbf \t\r\n"
_SEPARATORS = _SPACE + b","
_BETWEEN = b"\n  },\n  {"  # events of Kineto
_AGAIN = b'"traceEvents"'  # a second document
_BETWEEN_ANY = re.compile(rb"\}\s*,\s*(?=\{)")
_NEAR = 4096  # bytes from the end of a block
_LONG = 4 << 20  # bytes without a place between two events
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
    and `tail` surround the list; `strays` counts items that are not objects; `complete`: it ends.
    `end`: after how many bytes of the file the list ends, or else its last whole event.

    `take` is offered most events many at a time, as a list of JSON; what it takes is left out. It
    has to refuse a text that is not a list of objects.
    """

    def __init__(
        self, blocks: Iterator[bytes], take: Callable[[bytes], bool] = lambda text: False
    ) -> None:
        self._blocks = self._counted(blocks)
        self._take = take
        self.head = b""
        self.tail = b""
        self.strays = 0
        self.complete = False
        self.kineto_layout = False
        self.bytes_read = 0

    def __iter__(self) -> Iterator[list[bytes]]:
        first, data = self._begin(), b""
        self.kineto_layout = first.startswith(_FIRST)
        for block in chain((first,), self._blocks):
            if self.complete:
                if len(self.tail) < MAX_EVENT >> 2:
                    self.tail += block
                continue
            end, begin = self._last_boundary(block)
            if end and self._take(b"".join((b"[", data, memoryview(block)[:end], b"]"))):
                data = block[begin:]
                yield []
                continue
            data += block
            if self.kineto_layout and _AGAIN not in data:
                *pieces, data = data.lstrip(_SEPARATORS)[1:].split(_BETWEEN)
                data = b"{" + data
                yield pieces
            elif end or len(data) > _LONG:
                pieces, data = self._scanned(data)
                yield pieces
            self._bounded(data)
        if not self.complete:
            # What is left is the last event, or all that there is, and the end of the file.
            yield self._scanned(data)[0]

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

    def _bounded(self, rest: bytes) -> None:
        if len(rest) > MAX_EVENT:
            raise BeyondRepairError(
                f"{MAX_EVENT >> 20} MiB before byte {self.bytes_read:,} hold no end of an event"
            )

    def _last_boundary(self, data: bytes) -> tuple[int, int]:
        """Where the last event ends that another one follows, and where that one begins, as far as
        one can tell without decoding; 0 if there is none in this block."""
        if self.kineto_layout:
            end = data.rfind(_BETWEEN)
            return (end + 4, end + len(_BETWEEN) - 1) if end >= 0 else (0, 0)
        for begin in (max(len(data) - _NEAR, 0), 0):
            found = list(_BETWEEN_ANY.finditer(data, begin))
            if found:
                return found[-1].start() + 1, found[-1].end()
        return 0, 0

    def _scanned(self, data: bytes) -> tuple[list[bytes], bytes]:
        """Whole events of `data`, which begins between two of them, by a scan of quotes and
        brackets; and what follows them."""
        pieces, through, self.complete, strays = _scan(data)
        self.strays += strays
        rest = data[through:]
        if self.complete:
            self.tail, rest = rest, b""
        return pieces, rest.lstrip(_SEPARATORS)


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
