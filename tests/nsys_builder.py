"""Builds databases as Nsight Systems exports them, with known answers.

    nsys().launch(kernel_us=3, delay_us=8).write(path)

`without` leaves tables or columns out, as older versions did.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_DEVICE = "start, end, deviceId, contextId, streamId, correlationId, globalPid"
_TABLES = {
    "StringIds": "id, value",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, end, eventClass, globalTid, correlationId, nameId",
    "CUPTI_ACTIVITY_KIND_KERNEL": f"{_DEVICE}, demangledName, shortName, graphNodeId, graphId",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"{_DEVICE}, bytes, copyKind, srcKind, dstKind",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"{_DEVICE}, bytes",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"{_DEVICE}, graphId, graphExecId",
    "NVTX_EVENTS": "start, end, eventType, text, textId, globalTid",
    "TARGET_INFO_GPU": "id, name",
}


def global_pid(pid: int) -> int:
    """A process as nsys numbers it: machine above, thread (none here) below."""
    return (1 << 48) | (pid << 24)


class NsysBuilder:
    """Times are microseconds; every method returns the builder."""

    def __init__(self, start_us: float = 1000.0) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in _TABLES}
        self.host = start_us
        self._free: dict[tuple[int, int], float] = {}
        self._correlation = 0
        self._strings: dict[str, int] = {}
        self._open: tuple[str, float] | None = None
        self.pid = 77
        self.device = 0

    def process(self, pid: int, device: int) -> NsysBuilder:
        """What follows happens in this process, on this device, from now on."""
        self.end()
        self.pid, self.device, self._correlation = pid, device, 0
        return self

    def work(self, us: float) -> NsysBuilder:
        self.host += us
        return self

    def range(self, name: str) -> NsysBuilder:
        """Ends the open NVTX range, if any, and begins another."""
        self.end()
        self._open = (name, self.host)
        return self

    def end(self) -> NsysBuilder:
        if self._open is not None:
            name, begin = self._open
            self._open = None
            self.span(name, begin, self.host)
        return self

    def span(self, name: str, begin: float, end: float | None, *, by_id: bool = False,
             kind: int = 59) -> NsysBuilder:  # fmt: skip
        text = {"textId": self._string(name)} if by_id else {"text": name}
        return self._row("NVTX_EVENTS", start=_ns(begin), end=None if end is None else _ns(end),
                         eventType=kind, globalTid=self._tid(), **text)  # fmt: skip

    def call(self, name: str, us: float = 4) -> int:
        """A call and its correlation id."""
        self._correlation += 1
        self._row("CUPTI_ACTIVITY_KIND_RUNTIME", start=_ns(self.host), end=_ns(self.host + us),
                  eventClass=0, globalTid=self._tid(), correlationId=self._correlation,
                  nameId=self._string(name))  # fmt: skip
        self.host += us
        return self._correlation

    def launch(self, kernel_us: float = 3, delay_us: float = 5, *, name: str = "kernel",
               stream: int = 7, api: str = "cudaLaunchKernel_v7000") -> NsysBuilder:  # fmt: skip
        begin = self.host + delay_us
        correlation = self.call(api)
        number = self._string(name)
        return self._run("KERNEL", begin, kernel_us, correlation, stream, demangledName=number,
                         shortName=number)  # fmt: skip

    def graph(self, kernels: Iterable[float], *, nodes: bool, delay_us: float = 10) -> NsysBuilder:
        """A graph launch, traced by node or as a whole."""
        begin = self.host + delay_us
        correlation = self.call("cudaGraphLaunch_v10000", 8)
        if not nodes:
            return self._run("GRAPH_TRACE", begin, sum(kernels), correlation, 7, graphId=5,
                             graphExecId=6)  # fmt: skip
        for index, us in enumerate(kernels):
            name = self._string(f"node{index}")
            self._run("KERNEL", begin, us, correlation, 7, demangledName=name, shortName=name,
                      graphNodeId=index + 1, graphId=5)  # fmt: skip
        return self

    def memcpy(self, us: float = 2, *, source: int = 0, target: int = 2) -> NsysBuilder:
        begin = self.host + 5
        correlation = self.call("cudaMemcpyAsync_v3020")
        return self._run("MEMCPY", begin, us, correlation, 7, bytes=64, copyKind=1,
                         srcKind=source, dstKind=target)  # fmt: skip

    def memset(self, us: float = 1) -> NsysBuilder:
        begin = self.host + 5
        return self._run("MEMSET", begin, us, self.call("cudaMemsetAsync_v3020"), 7, bytes=16)

    def sync(self, us: float = 5) -> NsysBuilder:
        self.call("cudaStreamSynchronize_v3020", us)
        return self

    def write(self, path: Path, *, without: Iterable[str] = ()) -> Path:
        """The database. `without` names tables, or columns as `table.column`."""
        self.end()
        for identity, name in ((number, name) for name, number in self._strings.items()):
            self.rows["StringIds"].append({"id": identity, "value": name})
        left_out = set(without)
        with sqlite3.connect(path) as connection:
            for table, listed in _TABLES.items():
                columns = [c for c in listed.split(", ") if f"{table}.{c}" not in left_out]
                # Tables without rows are not exported.
                if table in left_out or not (self.rows[table] or table == "StringIds"):
                    continue
                connection.execute(f"CREATE TABLE {table} ({', '.join(f'{c!r}' for c in columns)})")
                marks = ", ".join("?" * len(columns))
                rows = [[row.get(column) for column in columns] for row in self.rows[table]]
                connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
        connection.close()
        return path

    # ----------------------------------------------------------------------- inside

    def _run(self, kind: str, begin: float, us: float, correlation: int, stream: int,
             **more: Any) -> NsysBuilder:  # fmt: skip
        begin = max(begin, self._free.get((self.device, stream), begin))
        self._free[self.device, stream] = begin + us
        return self._row(f"CUPTI_ACTIVITY_KIND_{kind}", start=_ns(begin), end=_ns(begin + us),
                         deviceId=self.device, contextId=1, streamId=stream, **more,
                         correlationId=correlation, globalPid=global_pid(self.pid))  # fmt: skip

    def _row(self, table: str, **values: Any) -> NsysBuilder:
        self.rows[table].append(values)
        return self

    def _tid(self) -> int:
        return global_pid(self.pid) | self.pid

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings) + 1)


def _ns(us: float) -> int:
    return round(us * 1000)


def nsys(start_us: float = 1000.0) -> NsysBuilder:
    """An empty export."""
    return NsysBuilder(start_us)
