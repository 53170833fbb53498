"""Decodes the events of a Chrome trace: which are wanted, their fields, their times in ns."""

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

__all__ = ["CALL", "DEVICE", "OP", "RANGE", "Decoder", "Rows"]

# Which table an event goes into.
CALL, DEVICE, RANGE, OP = "call", "device", "range", "op"
# Categories as PyTorch 2 writes them (HIP's too), and as PyTorch 1.8 to 1.12 did.
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

# How an event of Kineto's own layout begins, without its brace.
_COMPLETE = b'\n    "ph": "X", "cat": "'
_KEY = len(_COMPLETE) + 8
_KEYS = {(_COMPLETE + name.encode() + b'", "name"')[:_KEY]: name for name in _GROUPS}
# Of these no byte is needed: flow arrows, other categories, names of threads.
_NEEDLESS = (
    b'\n    "ph": "s"', b'\n    "ph": "f"', b'\n    "ph": "i"', b'\n    "ph": "M"', _COMPLETE,
    b'\n    "name": "process_', b'\n    "name": "thread_',
)  # fmt: skip
_NAMED = re.compile(rb'"cat"\s*:\s*"(' + "|".join(_GROUPS).encode() + rb')"')
# An escape in a category's name would hide it from the bytes; then the event is decoded.
_HIDDEN = re.compile(rb'\\u00|"\\')

# What the autograd engine runs once a backward for each parameter that gets a gradient.
_ACCUMULATES = "torch::autograd::AccumulateGrad"
_GRADIENTS = tuple(
    _COMPLETE + f'{name}", "name": "{_ACCUMULATES}"'.encode()
    for name, group in _GROUPS.items()
    if group == OP
)

# A microsecond clock since 1970 stays under this until the year 5138; nanoseconds pass it.
_NANOSECOND_CLOCK = 1e17
# A double holds a thousandth of a microsecond up to here.
_EXACT_US = 2.0**43
_MOST_NS = 4 * 10**18  # two of them can be added
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
    """An operator of which only the time is wanted."""

    ts: Any = None
    dur: Any = 0
    pid: Any = -1


class _Clock(msgspec.Struct, gc=False):
    """The digits of a time, for files whose times do not fit in a double."""

    ts: msgspec.Raw


@dataclass(frozen=True)
class Rows:
    """Events of one kind, with their times in ns."""

    events: list[Any]
    args: list[_Args]
    names: list[str]
    start: Ints
    duration: Ints
    kind: str | None  # of an activity
    named: bool
    gradients: bool  # operators that hand a parameter its gradient, and no others


class Decoder:
    """Turns pieces into rows, and counts what it could not."""

    def __init__(self, *, op_names: bool) -> None:
        self.dropped = 0
        self.durations_mended = 0
        self.halves = 0  # events that only begin or end: PyTorch writes none
        self.repairs: list[str] = []
        self._op_names = op_names
        self._scale: int | None = None
        self._exactly = False
        self._types: dict[type, msgspec.json.Decoder[Any]] = {}

    def decoded(self, pieces: list[bytes], *, kineto_layout: bool) -> Iterator[tuple[str, Rows]]:
        """The wanted events of these pieces (objects without their outer braces), by kind."""
        sorted_: dict[str, list[bytes]] = {name: [] for name in _GROUPS}
        unknown: list[bytes] = []
        if kineto_layout:
            find = {key: sorted_[name].append for key, name in _KEYS.items()}.get
            for piece in pieces:
                put = find(piece[:_KEY])
                if put is not None:
                    put(piece)
                elif not piece.startswith(_NEEDLESS):
                    unknown.append(piece)
        else:
            unknown = [p for p in pieces if _NAMED.search(p) or _HIDDEN.search(p)]
        for name, all_of_it in sorted_.items():
            is_op = _GROUPS[name] == OP
            for mine in _gradients_apart(all_of_it) if is_op else (all_of_it,):
                if mine:
                    marks = is_op and not self._op_names
                    events, texts = self._events(mine, _Mark if marks else _Event)
                    gradients = is_op and mine[0].startswith(_GRADIENTS)
                    yield from self._rows(name, events, texts, gradients)
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
        """One event, if need be with its bytes made UTF-8 and its bare words null."""
        text, said = piece, []
        for mend in (None, _utf8, _words):
            if mend is not None:
                mended = mend(text)
                if mended == text:
                    continue
                text = mended
                said.append(UTF8 if mend is _utf8 else BARE_WORDS)
            try:
                event = self._decoder(form).decode(b"{" + text + b"}")
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            self.repairs += [repair for repair in said if repair not in self.repairs]
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
        named = group != OP or self._op_names
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
        sound = (np.abs(start) <= _MOST_NS) & (duration <= _MOST_NS)
        if not sound.all():
            self.dropped += int((~sound).sum())
            rows = np.flatnonzero(sound)
            events = [events[row] for row in rows.tolist()]
            start, duration = start[rows], duration[rows]
        if not events:
            return
        names = [e.name if type(e.name) is str else str(e.name) for e in events] if named else []
        args = [] if group in (OP, RANGE) else [event.args or _NO_ARGS for event in events]
        kind = _KINDS.get(name)
        yield group, Rows(events, args, names, start, duration, kind, named, gradients)

    def _times(self, events: list[Any], texts: list[bytes]) -> tuple[Ints, Ints] | None:
        """Start and duration in ns; None where a start is no time.

        A missing or negative duration is taken as 0 and counted.
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
        decoder = self._decoder(_Clock)
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


def _utf8(text: bytes) -> bytes:
    return text.decode(errors="replace").encode()


def _words(text: bytes) -> bytes:
    return _WORDS.sub(rb"\1null", text)


def _gradients_apart(pieces: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Operators, and those among them that hand a parameter its gradient."""
    gradients = [piece for piece in pieces if piece.startswith(_GRADIENTS)]
    if not gradients:
        return pieces, gradients
    return [piece for piece in pieces if not piece.startswith(_GRADIENTS)], gradients


def _numbers(values: list[Any]) -> Any:
    """As an int64 or float64 array; None when one of them is no finite number."""
    try:
        found = np.asarray(values)
    except (ValueError, OverflowError):
        return None
    if found.dtype == np.int64:
        return found
    if found.dtype == np.float64 and np.isfinite(found).all() and not _has_bool(values):
        return found
    if found.dtype in (np.uint64, object) and all(_is_time(value) for value in values):
        return np.asarray([float(value) for value in values])
    return None


def _has_bool(values: list[Any]) -> bool:
    return any(isinstance(value, bool) for value in values)


def _is_time(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and abs(value) < 1e19


def _nanoseconds(values: Any, scale: int) -> Ints:
    """Whole and fractional part apart, so that a large clock keeps its last digits.

    What does not fit comes out beyond the bound that `_rows` drops."""
    if values.dtype == np.int64:
        edge = _MOST_NS // scale + 1
        bounded: Ints = np.clip(values, -edge, edge) * scale
        return bounded
    edge_us = float(_MOST_NS // scale + 1)
    values = np.clip(values, -edge_us, edge_us)
    whole = np.floor(values)
    rest = np.rint((values - whole) * scale).astype(np.int64)
    found: Ints = whole.astype(np.int64) * scale + rest
    return found


def _bounded(value: float) -> int:
    """An integer of 64 bits; what does not fit comes out beyond the bound that `_rows` drops."""
    return int(max(min(value, 2 * _MOST_NS), -2 * _MOST_NS))
