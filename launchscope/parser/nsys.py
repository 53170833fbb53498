"""Reads the SQLite export of NVIDIA Nsight Systems (`nsys export --type sqlite`).

The file may lack tables and columns: older versions do not write them, and empty ones are not
exported. A graph traced as a whole is one row and an activity of its own kind: busy time.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import numpy as np

from launchscope.errors import InputError
from launchscope.parser import columns as c
from launchscope.parser.rows import Rows
from launchscope.parser.sources import Reading, Source, too_large
from launchscope.parser.trace import Damage, Ints, Table, Trace, from_zero, ints, unique

_MAGIC = b"SQLite format 3\0"
_CUPTI = "CUPTI_ACTIVITY_KIND_"
_KNOWN = (f"{_CUPTI}KERNEL", f"{_CUPTI}RUNTIME", f"{_CUPTI}GRAPH_TRACE", f"{_CUPTI}MEMCPY")
_ON_DEVICE = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")

# NVTX_EVENTS.eventType: pushed and popped, started and ended.
_NVTX_RANGES = (59, 60)
_MEMORY = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device",
           6: "Managed"}  # fmt: skip
_COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
_VERSION = re.compile(r"_v\d+(?:_ptsz|_ptds)?$")
# What torch.autograd.profiler.emit_nvtx adds to an operator's name.
_OPERATOR = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = .*$")
_OPS = ("aten::", "autograd::", "torch::", "c10d::")
_MOST_NS = 4 * 10**18
_NO_TIME = -(2**62)
_ROWS = 50_000  # read at once


def detect(path: Path) -> bool:
    """Whether the file is an SQLite database."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def read(path: Path, reading: Reading) -> Trace:
    """The trace in this export. Raises InputError when it is not an export of Nsight Systems,
    locked, beyond repair, or too large for the memory that may be used."""
    with closing(_opened(path)) as connection:
        return _Export(path, connection, reading).trace()


SOURCE = Source("nsys", detect, read)


def _opened(path: Path) -> sqlite3.Connection:
    """Read-only, and without a file beside it. A database that another program is writing to is
    refused, not read halfway."""
    for suffix in ("-journal", "-wal"):
        log = Path(f"{path.resolve()}{suffix}")
        if log.exists() and log.stat().st_size:
            raise InputError(
                f"{path} is not complete: its newest rows are still in {log.name}",
                hint="wait until the export is complete, and close the program that writes it",
            )
    place = f"file:{quote(os.fsencode(path.resolve()))}?mode=ro&immutable=1"
    connection = sqlite3.connect(place, uri=True)
    connection.text_factory = lambda content: content.decode(errors="replace")
    return connection


class _Export:
    """One export. What a table lacks is read as -1, a time as `_NO_TIME`, a text as None."""

    def __init__(self, path: Path, connection: sqlite3.Connection, reading: Reading) -> None:
        self._path = path
        self._connection = connection
        self._limit = reading.limit()
        self._dropped = self._repaired = 0
        self._broken = False  # a table of events breaks off
        self._repairs: list[str] = []
        self._strings: dict[int, str] = {}
        self._calls = Rows(c.CALL_COLUMNS)
        self._activities = Rows(c.ACTIVITY_COLUMNS)
        self._ranges = Rows(c.RANGE_COLUMNS)
        self._ops = Rows(c.OP_COLUMNS if reading.op_names else c.OP_MARKS)
        self._tables = (self._calls, self._activities, self._ranges, self._ops)
        self._columns = self._schema()

    def trace(self) -> Trace:
        for rows, texts in self._rows("StringIds", ("id",), text="value"):
            pairs = zip(rows["id"].tolist(), texts)
            self._strings.update((number, text) for number, text in pairs if text is not None)
        self._read_calls()
        self._read_activities()
        self._read_ranges()
        if not len(self._calls) and not len(self._activities) and self._repairs:
            raise self._damaged("; ".join(self._repairs))
        names = (text for _, texts in self._rows("TARGET_INFO_GPU", (), "name") for text in texts)
        device_name = next((name for name in names if name), None)
        tables = _with_one_process(*(table.table() for table in self._tables))
        calls, activities, ranges, ops = from_zero(*tables)
        return Trace(
            calls=calls,
            activities=activities,
            ranges=ranges,
            ops=ops,
            gradients=Rows(c.OP_MARKS).table(),  # the engine has no NVTX range
            python=Rows(c.RANGE_COLUMNS).table(),
            damage=Damage(self._dropped, 0, self._repaired, tuple(self._repairs), self._broken),
            device_name=device_name,
        )

    # ------------------------------------------------------------------- any table

    def _schema(self) -> dict[str, set[str]]:
        """The columns of each table. InputError if this is no export."""
        query = "SELECT t.name, p.name FROM sqlite_master t, pragma_table_info(t.name) p"
        columns: dict[str, set[str]] = {}
        try:
            for table, column in self._connection.execute(query):
                columns.setdefault(str(table), set()).add(str(column))
        except (sqlite3.Error, UnicodeError) as error:
            raise self._damaged(str(error)) from None
        if not columns.keys() & set(_KNOWN):
            raise InputError(
                f"{self._path} is an SQLite database, but no export of Nsight Systems with CUDA "
                "events",
                hint="nsys profile --trace cuda,nvtx, then nsys export --type sqlite",
            )
        for table in sorted(columns.keys() & set(_KNOWN)):
            if missing := {"start", "end"} - columns[table]:
                raise self._damaged(f"{table} has no column {' and no '.join(sorted(missing))}")
        return columns

    def _damaged(self, what: str) -> InputError:
        return InputError(f"{self._path} is damaged: {what}", hint="export it again")

    def _rows(
        self, table: str, wanted: tuple[str, ...], text: str | None = None
    ) -> Iterator[tuple[dict[str, Ints], list[str | None]]]:
        """Chunks of integer columns and of one text column, up to where the table breaks off."""
        if table not in self._columns:
            return
        there = self._columns[table]
        unknown = {n: _NO_TIME if n in ("start", "end") else -1 for n in wanted}
        parts = [f'COALESCE("{n}", {w})' if n in there else str(w) for n, w in unknown.items()]
        parts.append(f'"{text}"' if text in there else "NULL")
        read = 0
        try:
            cursor = self._connection.execute(f'SELECT {", ".join(parts)} FROM "{table}"')
            while chunk := cursor.fetchmany(_ROWS):
                read += len(chunk)
                columns = list(zip(*chunk))
                numbers = {n: np.asarray(columns[i], np.int64) for i, n in enumerate(wanted)}
                yield numbers, [None if t is None else str(t) for t in columns[-1]]
                if sum(table.bytes for table in self._tables) > self._limit:
                    rows = sum(map(len, self._tables))
                    raise too_large(self._path, f"after {rows:,} rows", self._limit)
        except (sqlite3.Error, OverflowError, ValueError) as error:
            self._broken |= "ACTIVITY" in table
            self._repairs.append(f"{table} breaks off after {read:,} rows ({error})")

    def _timed(self, kind: str, wanted: tuple[str, ...]) -> Iterator[dict[str, Ints]]:
        """Rows of a CUPTI table with a valid time; `end` is replaced by the duration."""
        for rows, _ in self._rows(_CUPTI + kind, wanted):
            valid = (np.abs(rows["start"]) <= _MOST_NS) & (rows["end"] <= _MOST_NS)
            self._dropped += int((~valid).sum())
            duration = np.maximum(rows["end"], _NO_TIME) - rows["start"]
            self._repaired += int((valid & (duration < 0)).sum())
            rows["end"] = np.maximum(duration, 0)
            yield {name: values[valid] for name, values in rows.items()}

    # ------------------------------------------------------------------- host side

    def _read_calls(self) -> None:
        wanted = ("start", "end", "globalTid", "correlationId", "nameId")
        for rows in self._timed("RUNTIME", wanted):
            texts = (self._strings.get(number, "call") for number in rows["nameId"].tolist())
            names = [_VERSION.sub("", text) for text in texts]
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

    def _read_ranges(self) -> None:
        wanted = ("start", "end", "eventType", "textId", "globalTid")
        for rows, texts in self._rows("NVTX_EVENTS", wanted, text="text"):
            kept = np.isin(rows["eventType"], _NVTX_RANGES) & (rows["end"] >= rows["start"])
            kept &= np.abs(rows["start"]) <= _MOST_NS
            pairs = zip(texts, rows["textId"].tolist())
            named = (self._strings.get(i, "") if text is None else text for text, i in pairs)
            names = np.asarray([_OPERATOR.sub("", name) for name in named], object)
            unknown = np.full(len(names), -1)  # what runs in which node of autograd
            operator = np.asarray([name.startswith(_OPS) for name in names], np.bool_)
            for table, mine in ((self._ops, kept & operator), (self._ranges, kept & ~operator)):
                table.add(
                    {
                        c.NAME: names[mine].tolist(),
                        c.START: rows["start"][mine],
                        c.DUR: (rows["end"] - rows["start"])[mine],
                        c.PID: _process(rows["globalTid"][mine]),
                        c.TID: _thread(rows["globalTid"][mine]),
                        **dict.fromkeys((c.SEQUENCE, c.FORWARD_THREAD), unknown[mine]),
                    }
                )

    # ----------------------------------------------------------------- device side

    def _read_activities(self) -> None:
        for rows in self._timed("KERNEL", (*_ON_DEVICE, "demangledName", "shortName")):
            pairs = zip(rows["demangledName"].tolist(), rows["shortName"].tolist())
            names = [self._strings.get(n) or self._strings.get(s, "kernel") for n, s in pairs]
            self._add_activities(rows, names, c.KERNEL)
        for rows in self._timed("MEMCPY", (*_ON_DEVICE, "copyKind", "srcKind", "dstKind")):
            kinds = (rows[name].tolist() for name in ("copyKind", "srcKind", "dstKind"))
            copies = [_copy(*each) for each in zip(*kinds)]
            names = [f"Memcpy {way} ({ends})" if ends else f"Memcpy {way}" for way, ends in copies]
            self._add_activities(rows, names, c.MEMCPY, [ends for _, ends in copies])
        for rows in self._timed("MEMSET", _ON_DEVICE):
            self._add_activities(rows, ["Memset"] * len(rows["start"]), c.MEMSET)
        for rows in self._timed("GRAPH_TRACE", (*_ON_DEVICE, "graphId")):
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
            }
        )


def _process(global_id: Ints) -> Ints:
    """nsys' process without its lower 24 bits, which are the thread's; -1 unknown."""
    # The topmost bit is a part of the machine's number, not a sign.
    return np.where(global_id != -1, (global_id >> 24) & 0xFFFFFFFFFF, -1)


def _thread(global_id: Ints) -> Ints:
    return np.where(global_id != -1, global_id & 0xFFFFFF, -1)


def _copy(kind: int, source: int, target: int) -> tuple[str, str]:
    """ "HtoD" and "Pageable -> Device", as Kineto writes them; "" where the ends are unknown."""
    known = source in _MEMORY and target in _MEMORY
    return _COPIES.get(kind, "copy"), f"{_MEMORY[source]} -> {_MEMORY[target]}" if known else ""


def _with_one_process(*tables: Table) -> tuple[Table, ...]:
    """Where every known process is the same, what has none gets it: older exports number
    processes in some of their tables only."""
    known = {int(pid) for table in tables for pid in unique(ints(table, c.PID))} - {-1}
    if len(known) > 1:
        return tables
    pid = known.pop() if known else 0
    return tuple(table.assign(**{c.PID: np.full(len(table), pid)}) for table in tables)
