"""Reads the Chrome-trace JSON that torch.profiler (Kineto) writes, gzipped or plain.

Clean files are decoded straight into typed Structs. Files that Kineto, an older PyTorch or
a full disk left dirty are mended first; what could not be kept is counted in `Damage`.
"""

from __future__ import annotations

import contextlib
import gzip
import math
import re
import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from launchscope.errors import InputError
from launchscope.parser import columns as c
from launchscope.parser.sources import Source
from launchscope.parser.trace import Damage, Ints, Trace, frame

__all__ = ["SOURCE"]

# Categories as PyTorch 2 writes them, and as PyTorch 1.8 to 1.12 did.
_CALLS = ("cuda_runtime", "cuda_driver", "Runtime")
_RANGES = ("user_annotation",)
_OPS = ("cpu_op", "Operator")
_ACTIVITIES = {
    "kernel": c.KERNEL, "Kernel": c.KERNEL, "gpu_memcpy": c.MEMCPY, "Memcpy": c.MEMCPY,
    "gpu_memset": c.MEMSET, "Memset": c.MEMSET,
}  # fmt: skip
_WANTED = frozenset({*_CALLS, *_RANGES, *_OPS, *_ACTIVITIES})

_INT64_MAX = 2**63 - 1
# A microsecond clock since 1970 stays under this until the year 5138; nanoseconds pass it.
_NANOSECOND_CLOCK = 1e17


class _Args(msgspec.Struct, gc=False):
    correlation: Any = -1
    external: Any = msgspec.field(name="External id", default=-1)
    device: Any = None
    stream: Any = None
    size: Any = msgspec.field(name="bytes", default=0)
    grid: Any = None
    block: Any = None


class _Event(msgspec.Struct, gc=False):
    ph: Any = None
    cat: Any = None
    name: Any = None
    ts: Any = None
    dur: Any = 0
    pid: Any = -1
    tid: Any = -1
    args: _Args | None = None


class _File(msgspec.Struct, gc=False):
    traceEvents: list[_Event]  # noqa: N815 (the field's name in the file)
    deviceProperties: Any = None  # noqa: N815


class _RawFile(msgspec.Struct, gc=False):
    traceEvents: list[msgspec.Raw]  # noqa: N815
    deviceProperties: Any = None  # noqa: N815


_NO_ARGS = _Args()


def detect(path: Path) -> bool:
    """Whether the file begins like a Chrome trace: an object with trace fields, or a list."""
    try:
        with path.open("rb") as plain:
            zipped = plain.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if zipped else path.open("rb") as file:
            head = file.read(1 << 16).lstrip(b"\xef\xbb\xbf \t\r\n")
    except (OSError, EOFError, zlib.error):
        return False
    if head.startswith(b"["):
        return b'"ph"' in head
    marks = (b'"traceEvents"', b'"deviceProperties"', b'"baseTimeNanoseconds"')
    return head.startswith(b"{") and any(mark in head for mark in marks)


def read(path: Path) -> Trace:
    """The trace in this file. Raises InputError when nothing in it can be decoded."""
    repairs: list[str] = []
    content = _content(path, repairs)
    events, properties, dropped = _decode(content, path, repairs)
    kept: dict[str, list[_Event]] = {category: [] for category in _WANTED}
    for event in events:
        if event.ph == "X" and isinstance(event.cat, str) and event.cat in kept:
            if _is_number(event.ts) and _is_number(event.dur):
                kept[event.cat].append(event)
            else:
                dropped += 1
    calls = _host([event for category in _CALLS for event in kept[category]], c.CALL_COLUMNS)
    ranges = _host([event for category in _RANGES for event in kept[category]], c.RANGE_COLUMNS)
    ops = _host([event for category in _OPS for event in kept[category]], c.OP_COLUMNS)
    activities = _activities({c: kept[c] for c in _ACTIVITIES})
    activities, ambiguous = _with_process(activities, calls)
    damage = Damage(dropped, ambiguous, tuple(repairs))
    return Trace(calls, activities, ranges, ops, "kineto", damage, _device_name(properties))


SOURCE = Source("kineto", detect, read)


# ------------------------------------------------------------------------ decoding


def _content(path: Path, repairs: list[str]) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error):
        repairs.append("the gzip stream ends early")
        stream = zlib.decompressobj(wbits=31)
        whole = bytearray()
        with contextlib.suppress(zlib.error):
            for start in range(0, len(content), 1 << 16):
                whole += stream.decompress(content[start : start + (1 << 16)])
        return bytes(whole)


def _decode(content: bytes, path: Path, repairs: list[str]) -> tuple[list[_Event], Any, int]:
    """Events, device properties, and how many events were lost on the way."""
    if content.lstrip().startswith(b"["):
        content = b'{"traceEvents":' + content + b"}"
    try:
        file = msgspec.json.decode(content, type=_File)
        return file.traceEvents, file.deviceProperties, 0
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    for mend in (_utf8, _as_is, _bare_words, _closed):
        mended = mend(content)
        if mended is None:
            continue
        if mended is not content and mend.__doc__:
            repairs.append(mend.__doc__)
        content = mended
        try:
            raw = msgspec.json.decode(content, type=_RawFile)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        events, dropped = _one_by_one(raw.traceEvents)
        return events, raw.deviceProperties, dropped
    raise InputError(
        f"{path} is damaged: it is no JSON that launchscope can mend",
        hint="record the trace again",
    )


def _one_by_one(raws: list[msgspec.Raw]) -> tuple[list[_Event], int]:
    """Each event by itself, so that one of a strange form costs only itself."""
    decoder = msgspec.json.Decoder(_Event)
    events: list[_Event] = []
    dropped = 0
    for raw in raws:
        try:
            events.append(decoder.decode(raw))
        except (msgspec.DecodeError, UnicodeDecodeError):
            dropped += 1
    return events, dropped


def _as_is(content: bytes) -> bytes | None:
    return content


def _utf8(content: bytes) -> bytes | None:
    """invalid UTF-8 replaced"""
    try:
        content.decode()
    except UnicodeDecodeError:
        return content.decode(errors="replace").encode()
    return None


def _bare_words(content: bytes) -> bytes | None:
    """bare words such as N/A and NaN read as null"""
    word = rb"(?:N/A|-?nan|-?NaN|-?inf|-?Infinity|None)"
    mended, count = re.subn(rb'(":\s*|[\[,]\s*)' + word + rb"(?=\s*[,}\]])", rb"\1null", content)
    return mended if count else None


def _closed(content: bytes) -> bytes | None:
    """the file ends early: cut after its last whole event"""
    end = len(content)
    for _ in range(64):
        end = content.rfind(b"}", 0, end)
        if end < 0:
            return None
        mended = content[: end + 1] + b"]}"
        try:
            msgspec.json.decode(mended, type=_RawFile)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        return mended
    return None


# -------------------------------------------------------------------------- frames


def _host(events: list[_Event], columns: tuple[str, ...]) -> pd.DataFrame:
    args = [event.args or _NO_ARGS for event in events]
    values: dict[str, Any] = {
        c.NAME: [str(event.name) for event in events],
        **_times(events),
        c.PID: _whole([event.pid for event in events]),
        c.TID: _whole([event.tid for event in events]),
    }
    if c.CORRELATION in columns:
        values[c.CORRELATION] = _whole([arg.correlation for arg in args])
    if c.EXTERNAL in columns:
        values[c.EXTERNAL] = _whole([arg.external for arg in args])
    return frame(columns, values)


def _activities(kept: dict[str, list[_Event]]) -> pd.DataFrame:
    events = [event for category in kept.values() for event in category]
    kinds = [_ACTIVITIES[cat] for cat, category in kept.items() for _ in category]
    args = [event.args or _NO_ARGS for event in events]
    names = [str(event.name) for event in events]
    return frame(
        c.ACTIVITY_COLUMNS,
        {
            c.NAME: names,
            **_times(events),
            c.PID: np.full(len(events), -1),
            c.KIND: kinds,
            # Kineto's pid and tid of a device event are its device and stream.
            c.DEVICE: _whole([e.pid if a.device is None else a.device
                            for e, a in zip(events, args, strict=True)]),
            c.STREAM: _whole([e.tid if a.stream is None else a.stream
                            for e, a in zip(events, args, strict=True)]),
            c.CORRELATION: _whole([arg.correlation for arg in args]),
            c.BYTES: np.maximum(_whole([arg.size for arg in args]), 0),
            c.COPY: [_copy_kind(name) if kind == c.MEMCPY else ""
                   for name, kind in zip(names, kinds, strict=True)],
            c.BLOCKS: [_product(arg.grid) for arg in args],
            c.THREADS: [_product(arg.block) for arg in args],
        },
    )  # fmt: skip


def _with_process(activities: pd.DataFrame, calls: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Activities with the process whose call has their correlation id.

    Kineto writes the device where a process would stand. A file normally holds one process;
    in a merged file an id that several processes used says nothing, and is counted.
    """
    joined = calls.loc[calls[c.CORRELATION] >= 0, [c.CORRELATION, c.PID]].drop_duplicates()
    shared = joined[c.CORRELATION].duplicated(keep=False)
    process = joined[~shared].set_index(c.CORRELATION)[c.PID]
    pid = activities[c.CORRELATION].map(process).fillna(-1).astype(np.int64)
    ambiguous = int(activities[c.CORRELATION].isin(joined.loc[shared, c.CORRELATION]).sum())
    return activities.assign(**{c.PID: pid}), ambiguous


def _times(events: list[_Event]) -> dict[str, Ints]:
    starts = [event.ts for event in events]
    scale = 1 if starts and max(starts) > _NANOSECOND_CLOCK else 1000
    return {
        c.START: _nanoseconds(starts, scale),
        c.DUR: np.maximum(_nanoseconds([event.dur for event in events], scale), 0),
    }


def _nanoseconds(values: list[Any], scale: int) -> Ints:
    """Whole and fractional part apart, so that a large clock keeps its last digits."""
    if all(type(value) is int for value in values):
        return np.asarray(values, np.int64) * scale
    numbers = np.asarray(values, np.float64)
    whole = np.floor(numbers)
    return whole.astype(np.int64) * scale + np.rint((numbers - whole) * scale).astype(np.int64)


def _whole(values: list[Any]) -> Ints:
    """Integers; -1 for what is none, or does not fit in 64 bits."""
    try:
        if all(type(value) is int for value in values):
            return np.asarray(values, np.int64)
    except OverflowError:
        pass
    return np.asarray([_integer(value) for value in values], np.int64)


def _integer(value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return -1
    return number if abs(number) <= _INT64_MAX else -1


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value) and abs(value) < 1e19


def _product(sizes: Any) -> int:
    if not isinstance(sizes, list) or not all(isinstance(size, int) for size in sizes):
        return 0
    return min(math.prod(sizes), _INT64_MAX) if sizes else 0


def _copy_kind(name: str) -> str:
    """ "Pageable -> Device" of "Memcpy HtoD (Pageable -> Device)"."""
    inside = re.search(r"\(([^)]*->[^)]*)\)", name)
    return inside.group(1) if inside else name


def _device_name(properties: Any) -> str | None:
    if isinstance(properties, list) and properties and isinstance(properties[0], dict):
        name = properties[0].get("name")
        return name if isinstance(name, str) else None
    return None
