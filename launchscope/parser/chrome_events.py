"""Decodes the events of a Chrome trace that belong in a table: their fields, and times in ns."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from launchscope.parser import columns as c
from launchscope.parser.trace import Ints

# The table that an event goes into.
CALL, DEVICE, RANGE, OP = "call", "device", "range", "op"
# Categories as PyTorch 2 writes them (also for HIP), and as PyTorch 1.8 to 1.12 did.
_GROUPS = {
    "cuda_runtime": CALL, "cuda_driver": CALL, "Runtime": CALL, "hip_runtime": CALL,
    "kernel": DEVICE, "Kernel": DEVICE, "gpu_memcpy": DEVICE, "Memcpy": DEVICE,
    "gpu_memset": DEVICE, "Memset": DEVICE,
    "user_annotation": RANGE, "cpu_op": OP, "Operator": OP,
}  # fmt: skip
_KINDS = {
    "kernel": c.KERNEL, "Kernel": c.KERNEL, "gpu_memcpy": c.MEMCPY, "Memcpy": c.MEMCPY,
    "gpu_memset": c.MEMSET, "Memset": c.MEMSET,
}  # fmt: skip

# The first bytes of an event in Kineto's own layout, after its brace.
_EVENT_START = b'\n    "ph": "X", "cat": "'
_KEY = len(_EVENT_START) + 8
_KEYS = {(_EVENT_START + name.encode() + b'", "name"')[:_KEY]: name for name in _GROUPS}
# Events that are dropped undecoded: flow arrows, other categories, names of threads.
_DROPPED = (
    b'\n    "ph": "s"', b'\n    "ph": "f"', b'\n    "ph": "i"', b'\n    "ph": "M"', _EVENT_START,
    b'\n    "name": "process_', b'\n    "name": "thread_',
)  # fmt: skip
_NAMED = re.compile(rb'"cat"\s*:\s*"(' + "|".join(_GROUPS).encode() + rb')"')
# An escape could hide a category's name: such an event is decoded.
_HIDDEN = re.compile(rb'\\u00|"\\')

# The autograd engine runs it once per backward for each parameter that gets a gradient.
_ACCUMULATES = "torch::autograd::AccumulateGrad"
_GRADIENTS = tuple(
    _EVENT_START + f'{name}", "name": "{_ACCUMULATES}"'.encode()
    for name, group in _GROUPS.items()
    if group == OP
)

# A microsecond clock since 1970 stays under this until the year 5138; nanoseconds pass it.
_NANOSECOND_CLOCK = 1e17
# A double holds a thousandth of a microsecond up to here.
_EXACT_US = 2.0**43
_MAX_NS = 4 * 10**18  # two of them can be added
_WORDS = re.compile(
    rb'(":\s*|[\[,]\s*)(?:N/A|-?nan|-?NaN|-?inf|-?Infinity|None)(?=\s*(?:[,}\]]|$))'
)
UTF8 = "invalid UTF-8 replaced"
BARE_WORDS = "bare words such as N/A and NaN read as null"


class _Args(msgspec.Struct, gc=False):
    correlation: Any = -1
    device: Any = None
    stream: Any = None
    blocks: Any = msgspec.field(default=None, name="blocks per SM")
    warps: Any = msgspec.field(default=None, name="warps per SM")
    registers: Any = msgspec.field(default=None, name="registers per thread")
    shared: Any = msgspec.field(default=None, name="shared memory")


_NO_ARGS = _Args()


class _Event(msgspec.Struct, gc=False):
    name: Any = None
    ts: Any = None
    dur: Any = None
    pid: Any = -1
    tid: Any = -1
    args: _Args | None = None


class _Any(_Event, gc=False):
    ph: Any = None
    cat: Any = None


class _Mark(msgspec.Struct, gc=False):
    """An operator whose name was not asked for."""

    ts: Any = None
    dur: Any = 0
    pid: Any = -1


class _Digits(msgspec.Struct, gc=False):
    """A time as text, for files whose times do not fit in a double."""

    ts: msgspec.Raw


@dataclass(frozen=True)
class Rows:
    """Events of one category, with their times in ns. `names` is empty if nobody asked for them."""

    events: list[Any]
    args: list[_Args]
    names: list[str]
    start: Ints
    duration: Ints
    kind: str | None  # of an activity
    gradients: bool  # only operators that hand a parameter its gradient


class Decoder:
    """Turns the bytes of events into rows, and counts what it cannot decode."""

    def __init__(self, *, op_names: bool) -> None:
        self.dropped = 0
        self.durations_mended = 0
        self.halves = 0  # events that only begin or end, which PyTorch does not write
        self.repairs: list[str] = []
        self._op_names = op_names
        self._scale: int | None = None
        self._types: dict[type, msgspec.json.Decoder[Any]] = {}

    def decoded(self, pieces: list[bytes], *, kineto_layout: bool) -> Iterator[tuple[str, Rows]]:
        """Rows of each table, from the bytes of events without their outer braces."""
        sorted_: dict[str, list[bytes]] = {name: [] for name in _GROUPS}
        unknown: list[bytes] = []
        if kineto_layout:
            find = {key: sorted_[name].append for key, name in _KEYS.items()}.get
            for piece in pieces:
                put = find(piece[:_KEY])
                if put is not None:
                    put(piece)
                elif not piece.startswith(_DROPPED):
                    unknown.append(piece)
        else:
            unknown = [p for p in pieces if _NAMED.search(p) or _HIDDEN.search(p)]
        for name, found in sorted_.items():
            is_op = _GROUPS[name] == OP
            form = _Mark if is_op and not self._op_names else _Event
            gradients = [p for p in found if p.startswith(_GRADIENTS)] if is_op else []
            others = [p for p in found if not p.startswith(_GRADIENTS)] if gradients else found
            for mine in (others, gradients):
                if mine:
                    yield from self._rows(name, *self._events(mine, form), mine is gradients)
        if unknown:
            yield from self._by_category(unknown)

    def _by_category(self, pieces: list[bytes]) -> Iterator[tuple[str, Rows]]:
        events, texts = self._events(pieces, _Any)
        by_name: dict[tuple[str, bool], list[int]] = {}
        for row, event in enumerate(events):
            if not isinstance(event.cat, str) or event.cat not in _GROUPS:
                continue
            if event.ph == "X":
                gradient = event.name == _ACCUMULATES and _GROUPS[event.cat] == OP
                by_name.setdefault((event.cat, gradient), []).append(row)
            elif event.ph in ("B", "E"):
                self.halves += 1
        for (name, gradients), rows in by_name.items():
            mine = [events[r] for r in rows], [texts[r] for r in rows]
            yield from self._rows(name, *mine, gradients)

    # ------------------------------------------------------------------- decoding

    def _events(self, pieces: list[bytes], form: type) -> tuple[list[Any], list[bytes]]:
        """The pieces decoded as one list; one by one where one of them is dirty."""
        try:
            whole: list[Any] = self._decoder(list[form]).decode(  # type: ignore[valid-type]
                b"[{" + b"},{".join(pieces) + b"}]"
            )
            if len(whole) == len(pieces):
                return whole, pieces
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        events, texts = [], []
        for piece in pieces:
            found = self._mended(piece, form)
            if found is None:
                self.dropped += 1
            else:
                events.append(found[0])
                texts.append(found[1])
        return events, texts

    def _mended(self, piece: bytes, form: type) -> tuple[Any, bytes] | None:
        """One event with its bytes: as they are, made UTF-8, or with bare words as null too."""
        as_utf8 = piece.decode(errors="replace").encode()
        with_nulls = _WORDS.sub(rb"\1null", as_utf8)
        for text in dict.fromkeys((piece, as_utf8, with_nulls)):
            try:
                event = self._decoder(form).decode(b"{" + text + b"}")
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            if text != piece:
                made = [UTF8] * (as_utf8 != piece) + [BARE_WORDS] * (text != as_utf8)
                self.repairs += [repair for repair in made if repair not in self.repairs]
            return event, text
        return None

    def _decoder(self, form: Any) -> msgspec.json.Decoder[Any]:
        if form not in self._types:
            self._types[form] = msgspec.json.Decoder(form)
        return self._types[form]

    # ------------------------------------------------------------------ times

    def _rows(
        self, name: str, events: list[Any], texts: list[bytes], gradients: bool
    ) -> Iterator[tuple[str, Rows]]:
        if not events:
            return
        group = _GROUPS[name]
        times = self._times(events, texts)
        if times is None:
            kept = [row for row, event in enumerate(events) if _is_time(event.ts)]
            self.dropped += len(events) - len(kept)
            if not kept:
                return
            events, texts = [events[row] for row in kept], [texts[row] for row in kept]
            times = self._times(events, texts)
            assert times is not None
        start, duration = times
        valid = (np.abs(start) <= _MAX_NS) & (duration <= _MAX_NS)
        if not valid.all():
            self.dropped += int((~valid).sum())
            rows = np.flatnonzero(valid)
            events = [events[row] for row in rows.tolist()]
            start, duration = start[rows], duration[rows]
        if not events:
            return
        names: list[str] = []
        if group != OP or self._op_names:
            names = [e.name if type(e.name) is str else str(e.name) for e in events]
        args = [] if group in (OP, RANGE) else [event.args or _NO_ARGS for event in events]
        kind = _KINDS.get(name)
        yield group, Rows(events, args, names, start, duration, kind, gradients)

    def _times(self, events: list[Any], texts: list[bytes]) -> tuple[Ints, Ints] | None:
        """Start and duration in ns; None if a start is no time.

        A missing or negative duration becomes 0 and is counted.
        """
        starts = _numbers([event.ts for event in events])
        if starts is None:
            return None
        if self._scale is None:
            typical = float(np.median(np.abs(starts.astype(np.float64))))
            self._scale = 1 if typical > _NANOSECOND_CLOCK else 1000
        durations = _numbers([event.dur for event in events])
        if durations is None:
            kept = [event.dur if _is_time(event.dur) else -1 for event in events]
            durations = _numbers(kept)
            assert durations is not None
        self.durations_mended += int((durations < 0).sum())
        if starts.dtype == np.float64 and float(np.abs(starts).max(initial=0)) >= _EXACT_US:
            start = self._exact(texts)
        else:
            start = _nanoseconds(starts, self._scale)
        return start, np.maximum(_nanoseconds(durations, self._scale), 0)

    def _exact(self, texts: list[bytes]) -> Ints:
        """Starts from their digits, where a double would round them."""
        decoder = self._decoder(_Digits)
        scale = self._scale or 1000
        digits = 3 if scale == 1000 else 0
        found = []
        for text in texts:
            number = bytes(decoder.decode(b"{" + text + b"}").ts).decode()
            whole, point, fraction = number.partition(".")
            if point and fraction.isdigit() and whole.lstrip("-").isdigit():
                part = int((fraction + "000")[:digits] or 0)
                part += digits < len(fraction) and fraction[digits] >= "5"
                part = -part if whole.startswith("-") else part
                found.append(_bounded(int(whole) * scale + part))
            else:
                found.append(_bounded(float(number) * scale))
        return np.asarray(found, np.int64)


def _numbers(values: list[Any]) -> Any:
    """An int64 or float64 array; None when one of the values is no finite number."""
    try:
        found = np.asarray(values)
    except (ValueError, OverflowError):
        return None
    if found.dtype == np.int64:
        return found
    if found.dtype == np.float64 and np.isfinite(found).all():
        if not any(isinstance(value, bool) for value in values):
            return found
        return None
    if found.dtype in (np.uint64, object) and all(_is_time(value) for value in values):
        return np.asarray([float(value) for value in values])
    return None


def _is_time(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and abs(value) < 1e19


def _nanoseconds(values: Any, scale: int) -> Ints:
    """Whole and fractional part apart, so that a large clock keeps its last digits.

    What does not fit comes out beyond the bound that `_rows` drops."""
    if values.dtype == np.int64:
        edge = _MAX_NS // scale + 1
        bounded: Ints = np.clip(values, -edge, edge) * scale
        return bounded
    edge_us = float(_MAX_NS // scale + 1)
    values = np.clip(values, -edge_us, edge_us)
    whole = np.floor(values)
    rest = np.rint((values - whole) * scale).astype(np.int64)
    found: Ints = whole.astype(np.int64) * scale + rest
    return found


def _bounded(value: float) -> int:
    """An integer of 64 bits; what does not fit comes out beyond the bound that `_rows` drops."""
    return int(max(min(value, 2 * _MAX_NS), -2 * _MAX_NS))
