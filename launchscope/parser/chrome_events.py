"""Decodes the events of a Chrome trace that belong in a table, and gives their columns."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any, Literal, Union
from zlib import crc32

import msgspec
import numpy as np
import numpy.typing as npt

from launchscope.parser import columns as c
from launchscope.parser.trace import Bools, Ints, median_of

Numbers = npt.NDArray[Any]
# The table that an event goes into.
CALL, DEVICE, RANGE, OP, PYTHON = "call", "device", "range", "op", "python"
# Categories as PyTorch 2 writes them (also for HIP), and as PyTorch 1.8 to 1.12 did.
_KINDS = {
    "kernel": c.KERNEL, "Kernel": c.KERNEL, "gpu_memcpy": c.MEMCPY, "Memcpy": c.MEMCPY,
    "gpu_memset": c.MEMSET, "Memset": c.MEMSET,
}  # fmt: skip
_TABLES = {
    "cuda_runtime": CALL, "cuda_driver": CALL, "Runtime": CALL, "hip_runtime": CALL,
    "xpu_runtime": CALL, "xpu_driver": CALL, "privateuse1_runtime": CALL,
    "privateuse1_driver": CALL,
    **dict.fromkeys(_KINDS, DEVICE),
    "user_annotation": RANGE, "cpu_op": OP, "Operator": OP,
}  # fmt: skip
_RANGE, _OLD_OP = "user_annotation", "Operator"  # old profilers had no category for ranges
# Many, and read only where somebody asks who launched the work; those in damaged parts are not.
_PYTHON_TABLES = {"python_function": PYTHON}
# What else the profiler writes. Decoding passes over these events.
_OTHERS = (
    "python_function", "ac2g", "async", "async_cpu_to_gpu", "fwdbwd", "cpu_instant_event",
    "cuda_sync", "gpu_user_annotation", "overhead", "Trace",
)  # fmt: skip

_NAMED = re.compile(rb'"cat"\s*:\s*"(' + "|".join(_TABLES).encode() + rb')"')
_LIST_ENDS = re.compile(rb"(?<=\})\s*,?\s*\]")
_SEPARATORS = b" \t\r\n,"

# A microsecond clock since 1970 stays under this until the year 5138; nanoseconds pass it.
_NANOSECOND_CLOCK = 1e17
_MAX_NS = 4 * 10**18  # two of them can be added
_WORDS = re.compile(
    rb'(":\s*|[\[,]\s*)(?:N/A|-?nan|-?NaN|-?inf|-?Infinity|None)(?=\s*(?:[,}\]]|$))'
)
_UNDECODABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# The type to which Python converts integers in a fifth of the time of others. It has none below 0.
_QUICKEST = "L"
# With so many parts that are not all of well-formed events of known categories, others are not
# expected to be.
_MOST_MISSES = 8


class _CallArgs(msgspec.Struct, gc=False, frozen=True):
    correlation: object = -1


class _OpArgs(msgspec.Struct, gc=False, frozen=True):
    sequence: object = msgspec.field(default=-1, name="Sequence number")
    forward_thread: object = msgspec.field(default=-1, name="Fwd thread id")


class _Args(msgspec.Struct, gc=False, frozen=True):
    """The arguments of any event."""

    correlation: object = -1
    device: object = None
    stream: object = None
    sequence: object = msgspec.field(default=-1, name="Sequence number")
    forward_thread: object = msgspec.field(default=-1, name="Fwd thread id")


_NO_ARGS = _Args()
_ARGS: dict[str | None, Any] = {CALL: _CallArgs, DEVICE: _Args, OP: _OpArgs}


class _Event(msgspec.Struct, gc=False):
    """Any event. `_set_right` gives those that belong in a table the fields of `_Work`."""

    ph: object = None
    cat: object = None
    name: object = None
    ts: int | float | None = None
    dur: object = None
    pid: object = -1
    tid: object = -1
    args: _Args | None = None


class _Work(msgspec.Struct, gc=False, kw_only=True):
    """A well-formed event of a table, without arguments."""

    ph: Literal["X"]
    name: str
    pid: object = -1
    tid: object = -1
    ts: int | float
    dur: int | float


_EVENT = msgspec.json.Decoder(_Event, strict=False)  # some programs write times as strings
_EVENTS = msgspec.json.Decoder(list[_Event], strict=False)


@cache
def _typed(op_names: bool) -> tuple[msgspec.json.Decoder[list[Any]], dict[type, int]]:
    """Decodes lists of well-formed events, those of each category to a type of its own; and the
    numbers of these types: of the table's category, or one above those."""
    tables = _tables(op_names)
    number_of: dict[type, int] = {}
    for category in dict.fromkeys((*tables, *_OTHERS)):
        table = tables.get(category)
        kind = _ARGS.get(table) if table != OP or op_names else None
        made = msgspec.defstruct(
            category, [("args", kind, kind())] if kind is not None else [],
            bases=None if table is None else (_Work,), tag_field="cat", tag=category, gc=False,
        )  # fmt: skip
        number_of[made] = min(len(number_of), len(tables))
    any_of: Any = Union[tuple(number_of)]  # noqa: UP007
    return msgspec.json.Decoder(list[any_of]), number_of


def _tables(op_names: bool) -> dict[str, str]:
    return _TABLES | (_PYTHON_TABLES if op_names else {})


class Decoder:
    """Turns the bytes of events into columns, and counts what it cannot decode.

    `add` gets columns for a table.
    """

    def __init__(
        self, add: Callable[[str, dict[str, Any]], None], *, op_names: bool = True
    ) -> None:
        self._add = add
        self._op_names = op_names
        self._tables = _tables(op_names)
        self._number = {category: number for number, category in enumerate(self._tables)}
        self.dropped = 0
        self.durations_repaired = 0
        self.repairs: list[str] = []
        self._scale: int | None = None
        self._misses = 0

    @property
    def ns_per_unit(self) -> int:
        """The unit of the times in the file: 1000 for microseconds, 1 for nanoseconds."""
        return self._scale or 1000

    def take(self, text: bytes) -> bool:
        """Adds a list of events, if all of them can be decoded."""
        decoder, number_of = _typed(self._op_names)
        if self._misses < _MOST_MISSES:
            try:
                decoded = decoder.decode(text)
            except _UNDECODABLE:
                self._misses += 1
            else:
                self._add_events(decoded, bytes([number_of[type(e)] for e in decoded]))
                return True
        try:
            events = self._set_right(_EVENTS.decode(text))
        except _UNDECODABLE:
            return False
        self._add_events(events, bytes(self._number[str(event.cat)] for event in events))
        return True

    def repair(self, pieces: list[bytes]) -> bytes | None:
        """Adds those of these events that belong in a table and can be decoded, if need be without
        what is invalid in them. Gives what follows the list of events if it ends in a piece."""
        texts, tail = list[bytes](), None
        for number, piece in enumerate(pieces):
            text, tail = self._repaired(piece.strip(_SEPARATORS))
            texts += filter(None, (text,))
            if tail is not None:
                tail = b",".join((tail, *pieces[number + 1 :]))
                break
        self.take(b"[%b]" % b",".join(texts))
        return tail

    def _repaired(self, piece: bytes) -> tuple[bytes, bytes | None]:
        """An event as text, empty if it cannot be decoded, and what follows it behind the last."""
        if piece.startswith(b"]"):
            return b"", piece
        for repair, text in _variants(piece):
            for end in (len(text), *(found.start() for found in _LIST_ENDS.finditer(text))):
                try:
                    _EVENT.decode(text[:end])
                except _UNDECODABLE:
                    continue
                if repair and repair not in self.repairs:
                    self.repairs.append(repair)
                return text[:end], text[end:] or None
        # The last event of a file that breaks off counts as none.
        self.dropped += piece.endswith(b"}") and _NAMED.search(piece) is not None
        return b"", None

    def _set_right(self, events: list[_Event]) -> list[_Event]:
        """The complete events that belong in a table, with all that a well-formed one has."""
        found = []
        for event in events:
            if type(event.cat) is not str or event.cat not in self._number:
                continue
            if event.ph != "X" or event.ts is None:
                # What only begins or ends has no duration; PyTorch does not write it.
                self.dropped += event.ph in ("X", "B", "E")
                continue
            event.name, event.args = str(event.name), event.args or _NO_ARGS
            if type(event.dur) not in (int, float):
                event.dur = -1.0
            found.append(event)
        return found

    def _add_events(self, events: list[Any], codes: bytes) -> None:
        """Adds those of the events whose codes are numbers of tables."""
        number = np.frombuffer(bytearray(codes), np.uint8)
        for row in np.flatnonzero(number == self._number[_OLD_OP]).tolist():
            if "#" in events[row].name:  # such as ProfilerStep#3
                number[row] = self._number[_RANGE]
        order = np.argsort(number, kind="stable")[: np.count_nonzero(number < len(self._tables))]
        if not len(order):
            return
        events, number = [events[row] for row in order.tolist()], number[order]
        start, duration, valid = self._times(events)
        if not valid.all():
            self.dropped += int((~valid).sum())
            events = [event for event, kept in zip(events, valid) if kept]
            start, duration, number = start[valid], duration[valid], number[valid]
        names = [event.name for event in events]
        pid = _integers([e.pid for e in events], _identity)
        tid = _integers([e.tid for e in events], _identity)
        edges = np.searchsorted(number, np.arange(len(self._tables) + 1)).tolist()
        for category, first, last in zip(self._tables, edges, edges[1:]):
            if first == last:
                continue
            rows, table = slice(first, last), self._tables[category]
            values = {
                c.NAME: names[rows],
                c.START: start[rows],
                c.DUR: duration[rows],
                c.PID: pid[rows],
                c.TID: tid[rows],
            }
            if table in (CALL, DEVICE):
                args = [event.args for event in events[rows]]
                values[c.CORRELATION] = _integers([arg.correlation for arg in args])
                if table == DEVICE:
                    values |= self._device_columns(category, names[rows], events[rows], args)
            if table == OP and self._op_names:
                args = [event.args for event in events[rows]]
                values[c.SEQUENCE] = _integers([arg.sequence for arg in args])
                values[c.FORWARD_THREAD] = _integers([arg.forward_thread for arg in args])
            self._add(table, values)

    def _device_columns(
        self, category: str, names: list[str], events: list[Any], args: list[_Args]
    ) -> dict[str, Any]:
        kind, unknown = _KINDS[category], np.full(len(events), -1, np.int32)
        # Kineto's pid and tid of a device event are its device and stream.
        device = [e.pid if a.device is None else a.device for e, a in zip(events, args)]
        stream = [e.tid if a.stream is None else a.stream for e, a in zip(events, args)]
        return {
            c.PID: unknown,
            c.KIND: kind,
            c.DEVICE: _integers(device, _identity),
            c.STREAM: _integers(stream, _identity),
            c.COPY: [_copy(name) for name in names] if kind == c.MEMCPY else "",
        }

    def _times(self, events: list[Any]) -> tuple[Ints, Ints, Bools]:
        """Start and duration in ns, and whether both are within what a trace can hold. A negative
        duration becomes 0 and is counted."""
        starts = _numbers([event.ts for event in events])
        if self._scale is None:
            typical = median_of(np.abs(starts.astype(np.float64)))
            self._scale = 1 if typical > _NANOSECOND_CLOCK else 1000
        scale = self.ns_per_unit
        start = _nanoseconds(starts, scale)
        durations = _numbers([event.dur for event in events])
        self.durations_repaired += int((durations < 0).sum())
        duration = np.maximum(_nanoseconds(durations, scale), 0)
        return start, duration, (np.abs(start) <= _MAX_NS) & (duration <= _MAX_NS)


def _variants(piece: bytes) -> Iterator[tuple[str, bytes]]:
    """The text of an event as it is, made UTF-8, and with bare words as null too."""
    yield "", piece
    as_utf8 = piece.decode(errors="replace").encode()
    yield "invalid UTF-8 replaced", as_utf8
    yield "bare words such as N/A and NaN read as null", _WORDS.sub(rb"\1null", as_utf8)


def _numbers(values: list[int | float]) -> Numbers:
    """An int64 array; a float64 array if a value does not fit."""
    with suppress(TypeError, OverflowError):
        found = np.asarray(array(_QUICKEST, values)).astype(np.int64)
        if found.min(initial=0) >= 0:
            return found
    for typecode in ("q", "d"):
        with suppress(TypeError, OverflowError):
            return np.asarray(array(typecode, values))
    return np.asarray([max(min(value, 1e19), -1e19) for value in values], np.float64)


def _nanoseconds(values: Numbers, scale: int) -> Ints:
    """The fraction is scaled by itself, so that a large clock keeps its last digits; what does not
    fit comes out beyond `_MAX_NS`."""
    edge = _MAX_NS // scale + 1
    values = np.minimum(np.maximum(values, -edge), edge)  # np.clip takes longer to begin
    if values.dtype == np.int64:
        return values * scale
    whole = values.astype(np.int64)
    found: Ints = whole * scale + np.rint((values - whole) * scale).astype(np.int64)
    return found


def _integers(values: list[Any], read: Callable[[Any], int] | None = None) -> Numbers:
    """-1 for what is not an integer, or does not fit in 64 bits."""
    with suppress(TypeError, OverflowError):
        found = np.asarray(array(_QUICKEST, values))
        most = int(found.max(initial=0))
        if most < 2**63:
            return found.astype(np.int32 if most < 2**31 else np.int64)
    for typecode in ("i", "q"):
        with suppress(TypeError, OverflowError):
            return np.asarray(array(typecode, values))
    return np.asarray([(read or _integer)(value) for value in values], np.int64)


def _identity(value: Any) -> int:
    """A process, thread, device or stream, which some programs write as text: "python3 123" is 123,
    and a text without a number of its own gets one that is above all processes."""
    if type(value) is not str:
        return _integer(value)
    numbers = re.findall(r"\b\d{1,18}\b", value)
    return int(numbers[-1]) if numbers else (1 << 40) + crc32(value.encode(errors="replace"))


def _integer(value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return -1
    return number if abs(number) < 2**63 else -1


def _copy(name: str) -> str:
    """ "Pageable -> Device" of "Memcpy HtoD (Pageable -> Device)"."""
    inside = re.search(r"\(([^)]*->[^)]*)\)", name)
    return inside[1] if inside else name
