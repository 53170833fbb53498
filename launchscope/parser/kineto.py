"""Reads the Chrome-trace JSON that torch.profiler (Kineto) writes, gzipped or plain.

The file is never in memory as a whole. The first bytes of an event tell its category; events that
nobody needs are dropped undecoded, the others go into typed columns block by block. What Kineto,
an older PyTorch or a full disk left invalid is repaired event by event; what could not be kept is
counted in `Damage`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from launchscope.errors import InputError
from launchscope.parser import columns as c
from launchscope.parser.chrome_events import CALL, DEVICE, OP, RANGE, Decoder, Rows
from launchscope.parser.decompress import beginning, decompress
from launchscope.parser.json_events import MAX_EVENT, BeyondRepairError, Events
from launchscope.parser.occupancy import LaunchShapes
from launchscope.parser.sources import Reading, Source, too_large
from launchscope.parser.trace import Damage, Ints, Table, Trace, ints
from launchscope.wording import plural

_ENDS_EARLY = "the file ends early: cut after its last whole event"


class _About(msgspec.Struct):
    """What a file says about itself, before or after its events."""

    deviceProperties: Any = None  # noqa: N815 (the fields' names in the file)
    distributedInfo: Any = None  # noqa: N815
    with_stack: Any = None


def detect(path: Path) -> bool:
    """Whether the file begins like a Chrome trace: an object with trace fields, or a list."""
    head = beginning(path).lstrip(b"\xef\xbb\xbf \t\r\n")
    if head.startswith(b"["):
        return b'"ph"' in head
    if not head.startswith(b"{") or b'"launchscope/' in head:
        return False
    marks = (b'"traceEvents"', b'"deviceProperties"', b'"baseTimeNanoseconds"')
    if any(mark in head for mark in marks):
        return True
    # Some programs write long tables before the events.
    return marks[0] in beginning(path, MAX_EVENT)


def read(path: Path, reading: Reading) -> Trace:
    """The trace in this file. Raises InputError when nothing in it can be decoded, or when it
    does not fit in the memory that may be used."""
    repairs: list[str] = []
    events = Events(decompress(path, repairs))
    decoder = Decoder(op_names=reading.op_names)
    tables = {
        CALL: Table(c.CALL_COLUMNS),
        DEVICE: Table(c.ACTIVITY_COLUMNS),
        RANGE: Table(c.RANGE_COLUMNS),
        OP: Table(c.OP_COLUMNS if reading.op_names else c.OP_MARKS),
    }
    gradients = Table(c.OP_MARKS)
    shapes = LaunchShapes()
    limit = reading.limit()
    try:
        for pieces in events:
            for group, rows in decoder.decoded(pieces, kineto_layout=events.kineto_layout):
                values = _COLUMNS[group](rows)
                if group == DEVICE and rows.kind == c.KERNEL:
                    values[c.SHARE] = shapes.numbers(rows.args)
                tables[group].add(values)
                if rows.gradients:
                    gradients.add(values)
            if sum(table.bytes for table in tables.values()) > limit:
                raise too_large(path, f"after {events.bytes_read / 1e9:.2f} GB of JSON", limit)
    except BeyondRepairError as error:
        raise InputError(f"{path} is damaged: {error}", hint="record the trace again") from error
    if not events.complete:
        repairs.append(_ENDS_EARLY)
    repairs += decoder.repairs
    if decoder.halves:
        repairs.append(
            f'{plural(decoder.halves, "event")} of "ph" B or E, which only begin or end, left out'
        )
    about = _about(events)
    frames = [tables[group].frame() for group in (CALL, DEVICE, RANGE, OP)]
    calls, activities, ranges, ops, given = _from_zero(*frames, gradients.frame())
    activities, ambiguous = _with_process(activities, calls)
    share = shapes.shares_ppm(ints(activities, c.SHARE), about.deviceProperties)
    activities = activities.assign(**{c.SHARE: share})
    rank, world_size = _distributed(about.distributedInfo)
    return Trace(
        calls=calls,
        activities=activities,
        ranges=ranges,
        ops=ops,
        gradients=given,
        source="kineto",
        damage=Damage(
            decoder.dropped + events.strays, ambiguous, decoder.durations_mended,
            tuple(dict.fromkeys(repairs)), not events.complete,
        ),
        device_name=_device_name(about.deviceProperties),
        rank=rank,
        world_size=world_size,
        with_stack=bool(about.with_stack),
    )  # fmt: skip


SOURCE = Source("kineto", detect, read)


# ------------------------------------------------------------------------- columns


def _host(rows: Rows) -> dict[str, Any]:
    return {
        c.NAME: rows.names,
        c.START: rows.start,
        c.DUR: rows.duration,
        c.PID: whole([event.pid for event in rows.events]),
        c.TID: whole([event.tid for event in rows.events]),
    }


def _calls(rows: Rows) -> dict[str, Any]:
    return {**_host(rows), c.CORRELATION: whole([arg.correlation for arg in rows.args])}


def _marks(rows: Rows) -> dict[str, Any]:
    if rows.names:
        return _host(rows)
    return {c.START: rows.start, c.PID: whole([event.pid for event in rows.events])}


def _activities(rows: Rows) -> dict[str, Any]:
    events, args = rows.events, rows.args
    return {
        c.NAME: rows.names,
        c.START: rows.start,
        c.DUR: rows.duration,
        c.PID: np.full(len(events), -1, np.int64),
        c.KIND: [rows.kind] * len(events),
        # Kineto's pid and tid of a device event are its device and stream.
        c.DEVICE: whole([e.pid if a.device is None else a.device for e, a in zip(events, args)]),
        c.STREAM: whole([e.tid if a.stream is None else a.stream for e, a in zip(events, args)]),
        c.CORRELATION: whole([arg.correlation for arg in args]),
        c.COPY: [copy_kind(name) for name in rows.names]
        if rows.kind == c.MEMCPY
        else [""] * len(events),
        c.SHARE: np.full(len(events), -1, np.int64),
    }


_COLUMNS = {CALL: _calls, DEVICE: _activities, RANGE: _host, OP: _marks}


def _from_zero(*frames: pd.DataFrame) -> tuple[pd.DataFrame, ...]:
    """Frames without times before 0, which a clock of its own choosing may give."""
    first = min((int(frame[c.START].iloc[0]) for frame in frames if len(frame)), default=0)
    if first >= 0:
        return frames
    return tuple(
        frame.assign(**{name: frame[name] - first for name in (c.START, c.END) if name in frame})
        for frame in frames
    )


def whole(values: list[Any]) -> Ints:
    """Integers; -1 for what is not one, or does not fit in 64 bits."""
    try:
        found = np.asarray(values)
        if found.dtype == np.int64:
            return found
    except (ValueError, OverflowError):
        pass
    return np.asarray([_integer(value) for value in values], np.int64)


def _integer(value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return -1
    return number if abs(number) < 2**63 else -1


def copy_kind(name: str) -> str:
    """ "Pageable -> Device" of "Memcpy HtoD (Pageable -> Device)"."""
    inside = re.search(r"\(([^)]*->[^)]*)\)", name)
    return inside.group(1) if inside else name


def _with_process(activities: pd.DataFrame, calls: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Activities with the process whose call has their correlation id, and how many lack one.

    Kineto writes the device instead of the process. Where several processes of a merged file used
    an id, the process that owns the device, by the ids that only it used, has the activity.
    """
    pids = calls[c.PID].unique()
    if len(pids) == 1:
        known = np.isin(ints(activities, c.CORRELATION), ints(calls, c.CORRELATION))
        known &= ints(activities, c.CORRELATION) >= 0
        return activities.assign(**{c.PID: np.where(known, pids[0], -1)}), 0
    joined = calls.loc[calls[c.CORRELATION] >= 0, [c.CORRELATION, c.PID]].drop_duplicates()
    shared = joined[c.CORRELATION].duplicated(keep=False)
    process = joined[~shared].set_index(c.CORRELATION)[c.PID]
    pid = activities[c.CORRELATION].map(process).fillna(-1).astype(np.int64)
    ambiguous = activities[c.CORRELATION].isin(joined.loc[shared, c.CORRELATION])
    if ambiguous.any():
        owners = pd.DataFrame({"device": activities[c.DEVICE], "pid": pid})[pid >= 0]
        owners = owners.drop_duplicates()
        sole = owners[~owners["device"].duplicated(keep=False)].set_index("device")["pid"]
        guess = activities[c.DEVICE].map(sole)
        # Only a process that used this id can have launched it.
        used = pd.MultiIndex.from_frame(joined[[c.CORRELATION, c.PID]])
        pairs = pd.MultiIndex.from_arrays([activities[c.CORRELATION], guess.fillna(-1)])
        settled = ambiguous & pairs.isin(used)
        pid = pid.where(~settled, guess).astype(np.int64)
        ambiguous &= ~settled
    return activities.assign(**{c.PID: pid}), int(ambiguous.sum())


# -------------------------------------------------------------------------- metadata


def _about(events: Events) -> _About:
    """The fields around the list of events; None where they cannot be decoded."""
    found = _About()
    tail = events.tail.lstrip(b"] \t\r\n").lstrip(b",")
    for text in (events.head + b"]}", b"{" + tail):
        try:
            part = msgspec.json.decode(text, type=_About)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        for field in part.__struct_fields__:
            if getattr(part, field) is not None:
                setattr(found, field, getattr(part, field))
    return found


def _device_name(properties: Any) -> str | None:
    if isinstance(properties, list) and properties and isinstance(properties[0], dict):
        name = properties[0].get("name")
        return name if isinstance(name, str) else None
    return None


def _distributed(info: Any) -> tuple[int | None, int | None]:
    if not isinstance(info, dict):
        return None, None
    rank, size = info.get("rank"), info.get("world_size")
    return (rank if type(rank) is int and rank >= 0 else None), (
        size if type(size) is int and size > 0 else None
    )
