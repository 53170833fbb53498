"""Reads the Chrome-trace JSON that torch.profiler (Kineto) writes, gzipped or plain.

The file is never in memory as a whole. Its events are decoded block by block, and those that
somebody needs go into typed columns. What is invalid is repaired event by event, or counted in
`Damage`.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from launchscope.errors import InputError
from launchscope.parser import columns as c
from launchscope.parser.chrome_events import CALL, DEVICE, OP, PYTHON, RANGE, Decoder
from launchscope.parser.decompress import beginning, decompress
from launchscope.parser.json_events import MAX_EVENT, BeyondRepairError, Events
from launchscope.parser.rows import Rows
from launchscope.parser.sources import Reading, Source, too_large
from launchscope.parser.trace import (
    Damage,
    Ints,
    Table,
    Trace,
    from_zero,
    ints,
    is_among,
    unique,
)  # fmt: skip

# Categories of device events that are not kernels, and what a file with only these is.
_FOREIGN = {
    b"mtia_ccp_events": "is of an MTIA device: its events mix work on the device with waits and "
    "DMA requests, so neither busy times nor launches can be told",
    b"hpu_op": "is of a Gaudi (HPU) device, whose events do not name the calls that launched them",
    b"Ascend Hardware": "is of an Ascend NPU, whose tasks do not name the calls that launched them",
    b"/device:TPU:0": "is of a TPU, whose compiled programs no host launches piece by piece",
    b"cuda_profiler_range": "was recorded with CUPTI's range profiler: it has counters of ranges "
    "and no kernels, so record it again without `experimental_config`",
}
# The autograd engine runs it once per backward for each parameter that gets a gradient.
_ACCUMULATES = "torch::autograd::AccumulateGrad"
_SEVERAL = np.iinfo(np.int64).min  # in place of a process


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
    tables = {
        CALL: Rows(c.CALL_COLUMNS),
        DEVICE: Rows(c.ACTIVITY_COLUMNS),
        RANGE: Rows(c.RANGE_COLUMNS),
        OP: Rows(c.OP_COLUMNS if reading.op_names else c.OP_MARKS),
        PYTHON: Rows(c.RANGE_COLUMNS),
    }
    gradients = Rows(c.OP_MARKS)
    limit = reading.limit()

    def add(table: str, values: dict[str, Any]) -> None:
        tables[table].add(values)
        if table == OP and _ACCUMULATES in values[c.NAME]:
            chosen = np.asarray([name == _ACCUMULATES for name in values[c.NAME]])
            gradients.add({column: values[column][chosen] for column in c.OP_MARKS})

    decoder = Decoder(add, op_names=reading.op_names)
    events = Events(decompress(path, repairs), decoder.take, decoder.repair)
    try:
        for _ in events:
            if sum(table.bytes for table in tables.values()) > limit:
                raise too_large(path, f"after {events.bytes_read / 1e9:.2f} GB of JSON", limit)
    except BeyondRepairError as error:
        raise InputError(f"{path} is damaged: {error}", hint="record the trace again") from error
    if not events.complete:
        repairs.append("the file ends early: cut after its last whole event")
    repairs += decoder.repairs
    metadata, is_followed = _metadata(events)
    if is_followed:
        repairs.append("another document follows the first one, and was not read")
    match metadata.get("deviceProperties"):
        case [dict(first), *_]:
            device = first
        case _:
            device = {}
    name = device.get("name")
    sorted_ = [rows.table() for rows in (*tables.values(), gradients)]
    calls, activities, ranges, ops, python, given = from_zero(*sorted_)
    if not len(activities):
        _refuse_foreign(path, events.complete)
    activities, ambiguous = _with_process(activities, calls)
    rank, world_size = _distributed(metadata.get("distributedInfo"))
    return Trace(
        calls=calls,
        activities=activities,
        ranges=ranges,
        ops=ops,
        gradients=given,
        python=python,
        damage=Damage(
            decoder.dropped, ambiguous, decoder.durations_repaired,
            tuple(dict.fromkeys(repairs)), is_followed or not events.complete,
        ),
        device_name=name if isinstance(name, str) else None,
        rank=rank,
        world_size=world_size,
        with_stack=bool(metadata.get("with_stack")),
    )  # fmt: skip


SOURCE = Source("kineto", detect, read)


def _refuse_foreign(path: Path, complete: bool) -> None:
    """InputError for a file whose device work launchscope cannot read."""
    has_events = has_categories = False
    for block in decompress(path, []):
        has_events |= b'"ph"' in block
        has_categories |= b'"cat"' in block
        for category, reason in _FOREIGN.items():
            if b'"' + category + b'"' in block:
                raise InputError(f"{path} {reason}")
    if complete and has_events and not has_categories:
        what = "is a Chrome trace of another program than Kineto: its events have no category"
        raise InputError(f"{path} {what}", hint="record it with torch.profiler")


def _with_process(activities: Table, calls: Table) -> tuple[Table, int]:
    """Activities with the process of their call (Kineto writes the device), and how many lack one.
    An id that several processes of a merged file used goes to the one that owns the device."""
    correlation = ints(activities, c.CORRELATION)
    used = ints(calls, c.CORRELATION) >= 0
    ids, processes = ints(calls, c.CORRELATION)[used], ints(calls, c.PID)[used]
    known = is_among(correlation, ids)
    if len(unique(ints(calls, c.PID))) == 1:
        return activities.assign(
            **{c.PID: np.where(known, calls[c.PID][:1], calls[c.PID].dtype.type(-1))}
        ), 0
    pid = _only(ids, processes, correlation)
    ambiguous = known & (pid == _SEVERAL)
    pid[ambiguous] = -1
    if ambiguous.any():
        owned, device = pid >= 0, ints(activities, c.DEVICE)
        guess = _only(device[owned], pid[owned], device)
        # Only a process that used this id can have launched it.
        for process in unique(guess[ambiguous & (guess >= 0)]):
            settled = ambiguous & (guess == process)
            settled &= np.isin(correlation, ids[processes == process])
            pid[settled], ambiguous[settled] = process, False
    return activities.assign(**{c.PID: pid}), int(ambiguous.sum())


def _only(keys: Ints, values: Ints, wanted: Ints) -> Ints:
    """The value that each wanted key has; -1 for a key that has none, `_SEVERAL` for several."""
    order = np.lexsort((values, keys))
    keys, values = keys[order], values[order]
    first, last = (np.searchsorted(keys, wanted, side) for side in ("left", "right"))
    low, high = (np.append(values, -1)[place] for place in (first, last - 1))
    return np.where(first == last, -1, np.where(low == high, low, _SEVERAL))


def _metadata(events: Events) -> tuple[dict[str, Any], bool]:
    """The fields around the list of events, as far as they can be decoded, and whether something
    follows the document."""
    found: dict[str, Any] = {}
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = msgspec.json.decode(events.head + b"]}", type=dict[str, Any])
    tail = events.tail.decode(errors="replace").lstrip("] \t\r\n")
    if events.head:
        text = "{" + tail.lstrip(",")
        try:
            fields, end = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            return found, False
        found, tail = found | fields, text[end:]
    return found, bool(tail.strip(" \t\r\n\0"))


def _distributed(info: Any) -> tuple[int | None, int | None]:
    """Rank and world size."""
    if not isinstance(info, dict):
        return None, None
    rank, size = info.get("rank"), info.get("world_size")
    known = type(rank) is int and 0 <= rank < 2**31, type(size) is int and 0 < size < 2**31
    return rank if known[0] else None, size if known[1] else None
