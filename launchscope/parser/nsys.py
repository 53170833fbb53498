"""Reads the SQLite export of NVIDIA Nsight Systems (`nsys export --type sqlite`).

The file is opened read-only. Tables and columns that an older version does not have, or that
were empty when it was exported, are no error. Calls and device work are joined on process and
correlation id: the process is the upper part of nsys' global thread id. With graphs traced as
a whole, a replay is one row; it becomes an activity of its own kind, so that it is busy time.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd

from launchscope.errors import InputError
from launchscope.parser import columns as c
from launchscope.parser.sources import Reading, Source, too_large
from launchscope.parser.sqlite_tables import Tables, TablesError
from launchscope.parser.tables import Table
from launchscope.parser.trace import Damage, Ints, Trace

__all__ = ["SOURCE"]

_MAGIC = b"SQLite format 3\0"
_CUPTI = "CUPTI_ACTIVITY_KIND_"
_KNOWN = (f"{_CUPTI}KERNEL", f"{_CUPTI}RUNTIME", f"{_CUPTI}GRAPH_TRACE", f"{_CUPTI}MEMCPY")

# Of NVTX_EVENTS.eventType: pushed and popped, started and ended.
_NVTX_RANGES = (59, 60)
# Of a synchronisation that no call of the file explains: by syncType.
_SYNC_CALLS = {1: "cudaEventSynchronize", 3: "cudaStreamSynchronize", 4: "cudaDeviceSynchronize"}
_MEMORY = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device",
           6: "Managed"}  # fmt: skip
_COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
_VERSION = re.compile(r"_v\d+(?:_ptsz|_ptds)?$")
# What torch.autograd.profiler.emit_nvtx adds to an operator's name.
_OPERATOR = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = .*$")
_OPS = ("aten::", "autograd::", "torch::", "c10d::")
_MOST_NS = 4 * 10**18


def detect(path: Path) -> bool:
    """Whether the file is an SQLite database."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def read(path: Path, reading: Reading) -> Trace:
    """The trace in this export. Raises InputError when it is no export of Nsight Systems,
    locked, beyond repair, or too large for the memory that may be used."""
    with closing(_opened(path)) as connection:
        try:
            tables = Tables(connection)
        except TablesError as error:
            raise InputError(f"{path} is damaged: {error}", hint="export it again") from error
        if not any(tables.has(name) for name in _KNOWN):
            raise InputError(
                f"{path} is an SQLite database, but no export of Nsight Systems with CUDA events",
                hint="nsys profile --trace cuda,nvtx, then nsys export --type sqlite",
            )
        reader = _Reader(path, tables, reading)
        return reader.trace()


SOURCE = Source("nsys", detect, read)


def _opened(path: Path) -> sqlite3.Connection:
    """Read-only. A database that another program is writing to is refused, not read halfway."""
    place = f"file:{quote(str(path.resolve()))}?mode=ro"
    for uri in (place, f"{place}&immutable=1"):
        connection = sqlite3.connect(uri, uri=True, timeout=1.0, check_same_thread=True)
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            connection.text_factory = _text
            return connection
        except sqlite3.OperationalError as error:
            connection.close()
            if "locked" in str(error):
                raise InputError(
                    f"{path} is locked: another program is writing to it",
                    hint="wait until the export is complete",
                ) from error
            failed: Exception = error
        except (sqlite3.DatabaseError, UnicodeError) as error:
            connection.close()
            raise InputError(
                f"{path} is damaged and cannot be read as SQLite: {error}", hint="export it again"
            ) from error
    raise InputError(f"cannot read {path}: {failed}")


def _beside(path: Path) -> tuple[str, ...]:
    """What a program that writes to the database, or died doing so, leaves beside it."""
    left = [Path(f"{path}{suffix}") for suffix in ("-journal", "-wal")]
    return tuple(
        f"{file.name} lies beside it: the export may not be complete"
        for file in left
        if file.is_file() and file.stat().st_size
    )


def _one_process(*frames: pd.DataFrame) -> tuple[pd.DataFrame, ...]:
    """Where all that is known is of one process, so is what has none: older exports number
    processes in some of their tables only."""
    known = {int(pid) for frame in frames for pid in frame[c.PID].unique()} - {-1}
    if len(known) > 1:
        return frames
    pid = known.pop() if known else 0
    return tuple(frame.assign(**{c.PID: pid}) for frame in frames)


def _text(content: bytes) -> str:
    return content.decode(errors="replace")


class _Reader:
    """One export being read into tables of ours."""

    def __init__(self, path: Path, tables: Tables, reading: Reading) -> None:
        self._path = path
        self._source = tables
        self._reading = reading
        self._strings: dict[int, str] = {}
        self._dropped = 0
        self._mended = 0
        self._calls = Table(c.CALL_COLUMNS)
        self._activities = Table(c.ACTIVITY_COLUMNS)
        self._ranges = Table(c.RANGE_COLUMNS)
        self._ops = Table(c.OP_COLUMNS if reading.op_names else c.OP_MARKS)

    def trace(self) -> Trace:
        self._strings = self._source.texts("StringIds", "id", "value")
        self._read_calls()
        self._read_synchronisations()
        self._read_kernels()
        self._read_copies()
        self._read_sets()
        self._read_graphs()
        self._read_ranges()
        if not len(self._calls) and not len(self._activities) and self._source.repairs:
            raise InputError(
                f"{self._path} is damaged: {'; '.join(self._source.repairs)}",
                hint="export it again",
            )
        repairs = (*_beside(self._path), *self._source.repairs)
        frames = (t.frame() for t in (self._calls, self._activities, self._ranges, self._ops))
        calls, activities, ranges, ops = _one_process(*frames)
        return Trace(
            calls=calls,
            activities=activities,
            ranges=ranges,
            ops=ops,
            gradients=Table(c.OP_MARKS).frame(),  # the engine has no NVTX range
            source="nsys",
            damage=Damage(self._dropped, 0, self._mended, repairs, self._source.broken),
            device_name=self._source.first_text("TARGET_INFO_GPU", "name"),
        )

    # ------------------------------------------------------------------ host side

    def _read_calls(self) -> None:
        wanted = ("start", "end", "globalTid", "correlationId", "nameId")
        for rows in self._rows(f"{_CUPTI}RUNTIME", wanted):
            names = [self._call_name(name) for name in rows["nameId"].tolist()]
            self._calls.add(
                {
                    c.NAME: names,
                    c.START: rows["start"],
                    c.DUR: rows["end"],
                    c.PID: _process(rows["globalTid"]),
                    c.TID: _thread(rows["globalTid"]),
                    c.CORRELATION: rows["correlationId"],
                }
            )
            self._bounded()

    def _read_synchronisations(self) -> None:
        """Those of which the file has no call: they are known to have waited all the same."""
        known = set(self._calls.column(c.CORRELATION).tolist())
        for rows in self._rows(
            f"{_CUPTI}SYNCHRONIZATION", ("start", "end", "syncType", "correlationId", "globalPid")
        ):
            kind = rows["syncType"]
            told = np.asarray([n in known for n in rows["correlationId"].tolist()], np.bool_)
            chosen = np.flatnonzero(~told & np.isin(kind, list(_SYNC_CALLS)))
            self._calls.add(
                {
                    c.NAME: [_SYNC_CALLS[k] for k in kind[chosen].tolist()],
                    c.START: rows["start"][chosen],
                    c.DUR: rows["end"][chosen],
                    c.PID: _process(rows["globalPid"][chosen]),
                    c.TID: np.full(len(chosen), -1, np.int64),
                    c.CORRELATION: rows["correlationId"][chosen],
                }
            )

    def _read_ranges(self) -> None:
        numbers = ("start", "end", "eventType", "textId", "globalTid")
        for rows, texts in self._source.rows("NVTX_EVENTS", numbers, text="text"):
            kept = np.isin(rows["eventType"], _NVTX_RANGES) & (rows["end"] >= rows["start"])
            kept &= np.abs(rows["start"]) <= _MOST_NS
            chosen = np.flatnonzero(kept)
            ids = rows["textId"][chosen].tolist()
            told = (texts[row] for row in chosen.tolist())
            names = [
                _OPERATOR.sub("", self._strings.get(identity, "") if text is None else text)
                for text, identity in zip(told, ids)
            ]
            values = {
                c.START: rows["start"][chosen],
                c.DUR: (rows["end"] - rows["start"])[chosen],
                c.PID: _process(rows["globalTid"][chosen]),
                c.TID: _thread(rows["globalTid"][chosen]),
            }
            operator = np.fromiter((name.startswith(_OPS) for name in names), np.bool_, len(names))
            for table, mine in ((self._ops, operator), (self._ranges, ~operator)):
                part = {column: value[mine] for column, value in values.items()}
                table.add({c.NAME: [n for n, is_mine in zip(names, mine) if is_mine], **part})
            self._bounded()

    # ---------------------------------------------------------------- device side

    def _read_kernels(self) -> None:
        wanted = (*_ON_DEVICE, "demangledName", "shortName")
        for rows in self._rows(f"{_CUPTI}KERNEL", wanted):
            pairs = zip(rows["demangledName"].tolist(), rows["shortName"].tolist())
            names = [self._strings.get(n) or self._strings.get(s, "kernel") for n, s in pairs]
            self._add_activities(rows, names, c.KERNEL)

    def _read_copies(self) -> None:
        wanted = (*_ON_DEVICE, "copyKind", "srcKind", "dstKind")
        for rows in self._rows(f"{_CUPTI}MEMCPY", wanted):
            kinds = (rows[name].tolist() for name in ("copyKind", "srcKind", "dstKind"))
            ways = [_way(*each) for each in zip(*kinds)]
            names = [f"Memcpy {direction} ({way})" if way else f"Memcpy {direction}"
                     for direction, way in ways]  # fmt: skip
            self._add_activities(rows, names, c.MEMCPY, [way for _, way in ways])

    def _read_sets(self) -> None:
        for rows in self._rows(f"{_CUPTI}MEMSET", _ON_DEVICE):
            self._add_activities(rows, ["Memset"] * len(rows["start"]), c.MEMSET)

    def _read_graphs(self) -> None:
        for rows in self._rows(f"{_CUPTI}GRAPH_TRACE", (*_ON_DEVICE, "graphId")):
            names = [f"CUDA graph {graph}" for graph in rows["graphId"].tolist()]
            self._add_activities(rows, names, c.GRAPH)

    def _add_activities(
        self, rows: dict[str, Ints], names: list[str], kind: str, copies: list[str] | None = None
    ) -> None:
        count = len(names)
        self._activities.add(
            {
                c.NAME: names,
                c.START: rows["start"],
                c.DUR: rows["end"],
                c.PID: _process(rows["globalPid"]),
                c.KIND: [kind] * count,
                c.DEVICE: rows["deviceId"],
                c.STREAM: rows["streamId"],
                c.CORRELATION: rows["correlationId"],
                c.COPY: copies or [""] * count,
                c.SHARE: np.full(count, -1, np.int64),
            }
        )
        self._bounded()

    # --------------------------------------------------------------------- inside

    def _rows(self, table: str, wanted: tuple[str, ...]) -> Iterator[dict[str, Ints]]:
        """Rows with a sound time; `end` comes out as the duration."""
        for rows, _ in self._source.rows(table, wanted):
            sound = (rows["start"] >= 0) & (np.maximum(rows["start"], rows["end"]) <= _MOST_NS)
            self._dropped += int((~sound).sum())
            duration = np.maximum(rows["end"], -1) - rows["start"]
            self._mended += int((sound & (duration < 0)).sum())
            rows["end"] = np.maximum(duration, 0)
            yield {name: values[sound] for name, values in rows.items()}

    def _call_name(self, identity: int) -> str:
        return _VERSION.sub("", self._strings.get(identity, "call"))

    def _bounded(self) -> None:
        tables: Any = (self._calls, self._activities, self._ranges, self._ops)
        limit = self._reading.limit()
        if sum(table.bytes for table in tables) > limit:
            rows = sum(map(len, tables))
            raise too_large(self._path, f"after {rows:,} rows", limit)


_ON_DEVICE = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")


def _process(global_id: Ints) -> Ints:
    """nsys' process without its lower 24 bits, which are the thread's; -1 unknown."""
    # The topmost bit is a part of the machine's number, not a sign.
    return np.where(global_id != -1, (global_id >> 24) & 0xFFFFFFFFFF, -1)


def _thread(global_id: Ints) -> Ints:
    return np.where(global_id != -1, global_id & 0xFFFFFF, -1)


def _way(kind: int, source: int, target: int) -> tuple[str, str]:
    """ "HtoD" and "Pageable -> Device", as Kineto would say it; "" where that is unknown."""
    known = source in _MEMORY and target in _MEMORY
    return _COPIES.get(kind, "copy"), f"{_MEMORY[source]} -> {_MEMORY[target]}" if known else ""
