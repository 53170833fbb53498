"""A trace for ui.perfetto.dev and chrome://tracing, in the Trace Event Format: what host and
devices did, from the columns of the trace, and launchscope's lanes as one more process."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import msgspec

from launchscope.errors import UsageError
from launchscope.host import Blocks
from launchscope.model import Profile
from launchscope.report import RenderOptions, Reporter
from launchscope.report.documents.labels import CAUSES
from launchscope.visible import encodable, inert_json

if TYPE_CHECKING:
    from launchscope.analysis.timeline.annotations import Annotations, SpanKind
    from launchscope.parser.trace import Trace

_PROCESS = 2_000_000_000  # no process of Linux has such a number
_BLOCK = 4096  # events
_TITLES: dict[SpanKind, str] = {
    "iteration": "iterations, on the host",
    "step": "steps, on the host",
    "gpu": "iterations, on the GPU",
    "idle": "GPU idle, by cause",
}
Event = dict[str, Any]


def render(profile: Profile, options: RenderOptions) -> Blocks:
    """JSON, in blocks. UsageError for a Profile without its trace."""
    found = options.trace
    if found is None:
        raise UsageError(
            "a Profile does not hold its trace, so there is nothing to show on a timeline",
            hint="name a trace, or a recording that launchscope profile --keep-trace made",
        )
    return Blocks(lambda: _document(chain(_columns(found.trace), _lanes(found))))


def _document(events: Iterator[Event]) -> Iterator[bytes]:
    encode, before = msgspec.json.Encoder().encode, b'{"displayTimeUnit":"ms","traceEvents":[\n'
    while block := list(islice(events, _BLOCK)):
        yield before + inert_json(b",\n".join(map(encode, block)))
        before = b",\n"
    yield b"\n]}\n"


def _lanes(found: Annotations) -> Iterator[Event]:
    """What the analysis found, as a process beside those of the trace."""
    whose = f"GPU {found.device}" + (f", process {found.process}" if found.process else "")
    yield from _named("process", _PROCESS, 0, f"launchscope: {whose}", -1)
    used = [*found.used.tolist(), False]  # the last: of no iteration
    for number, lane in enumerate(found.lanes, 1):
        yield from _named("thread", _PROCESS, number, _TITLES[lane.kind], number)
        noun = "step" if lane.kind == "step" else "iteration"
        codes = lane.iteration if lane.names is None else lane.names.codes
        causes: Any = None if lane.names is None else lane.names.texts
        for code, start, end, row in _rows(codes, lane.start, lane.end, lane.iteration):
            name = f"{noun} {row}" if causes is None else CAUSES[causes[code]]
            args = {"iteration": row} if row >= 0 else {}
            args["in_figures"] = used[row]
            yield _slice(name, "launchscope", _PROCESS, number, start, end - start) | {"args": args}


def _columns(trace: Trace) -> Iterator[Event]:
    """What host and devices did, with an arrow from each call to what it launched."""
    from launchscope.parser import columns as c

    launched = set(trace.activities[c.CORRELATION].tolist())
    tables = (
        (trace.ranges, "user_annotation", c.PID, c.TID),
        (trace.python, "python_function", c.PID, c.TID),
        (trace.ops, "cpu_op", c.PID, c.TID),
        (trace.calls, "cuda_runtime", c.PID, c.TID),
        (trace.activities, "gpu", c.DEVICE, c.STREAM),
    )
    for device in sorted(set(trace.activities[c.DEVICE].tolist())):
        yield from _named("process", device, 0, f"GPU {device}", device)
    for table, category, process, thread in tables:
        if c.NAME not in table.columns:  # operators whose names nobody asked for
            continue
        is_device, has_flow = table is trace.activities, c.CORRELATION in table.columns
        names = list(map(encodable, table[c.NAME].texts))
        columns = [table[column] for column in (c.START, c.DUR, process, thread)]
        flows = table[c.CORRELATION] if has_flow else table[c.DUR] * 0
        for name, start, dur, pid, tid, flow in _rows(table[c.NAME].codes, *columns, flows):
            yield _slice(names[name], category, pid, tid, start, dur)
            if flow > 0 and flow in launched:
                place = {"pid": pid, "tid": tid, "ts": _us(start), "id": flow}
                end = {"ph": "f", "bp": "e"} if is_device else {"ph": "s"}
                yield {**end, "cat": "launch", "name": "launch", **place}


def _rows(*columns: Any) -> Iterator[tuple[Any, ...]]:
    """Rows of NumPy columns as Python values, of which only a block exists at a time."""
    for at in range(0, len(columns[0]), _BLOCK):
        yield from zip(*(column[at : at + _BLOCK].tolist() for column in columns))


def _named(kind: str, process: int, thread: int, name: str, place: int) -> Iterator[Event]:
    """The name of a process or thread, and its place among the others."""
    for field, value in (("name", name), ("sort_index", place)):
        of = {"name": f"{kind}_{field}", "pid": process, "tid": thread}
        yield {"ph": "M", "cat": "launchscope", **of, "args": {field: value}}


def _slice(name: str, category: str, process: int, thread: int, start: int, length: int) -> Event:
    place = {"pid": process, "tid": thread, "ts": _us(start), "dur": _us(length)}
    return {"ph": "X", "cat": category, "name": name, **place}


def _us(ns: int) -> msgspec.Raw:
    """Exact to the last nanosecond."""
    whole, part = divmod(abs(ns), 1000)
    return msgspec.Raw(f"{'-' if ns < 0 else ''}{whole}.{part:03d}".encode())


REPORTER = Reporter(
    "perfetto",
    (".perfetto.json", ".perfetto.json.gz"),
    {Profile: render},
    exact=True,
    shows_trace=True,
)
