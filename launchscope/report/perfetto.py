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
    from launchscope.analysis.timeline.annotations import Annotations, SpanKind, Spans
    from launchscope.parser.trace import Trace

_PROCESS = 2_000_000_000  # no process of Linux has such a number
_BLOCK = 4096  # events
_BETWEEN = ",\n"
_TITLES: dict[SpanKind, str] = {
    "iteration": "iterations, on the host",
    "step": "steps, on the host",
    "gpu": "iterations, on the GPU",
    "idle": "GPU idle, by cause",
}
_NOUNS: dict[SpanKind, str] = {"iteration": "iteration", "step": "step", "gpu": "iteration"}


def render(profile: Profile, options: RenderOptions) -> Blocks:
    """JSON, in blocks. UsageError for a Profile without its trace."""
    found = options.trace
    if found is None:
        raise UsageError(
            "a Profile does not hold its trace, so there is nothing to show on a timeline",
            hint="name a trace, or a recording that launchscope profile --keep-trace made",
        )
    return Blocks(lambda: _document(chain(_columns(found.trace), _lanes(found))))


def _document(events: Iterator[str]) -> Iterator[bytes]:
    before = '{"displayTimeUnit": "ms", "traceEvents": [\n'
    while block := list(islice(events, _BLOCK)):
        yield f"{before}{_BETWEEN.join(block)}".encode()
        before = _BETWEEN
    yield b"\n]}\n"


# ----------------------------------------------------------------------------- events


def _lanes(found: Annotations) -> Iterator[str]:
    """What the analysis found, as a process beside those of the trace."""
    whose = f"GPU {found.device}" + (f", process {found.process}" if found.process else "")
    yield from _named("process", _PROCESS, 0, f"launchscope: {whose}", -1)
    args = [
        f'{{"iteration": {number}, "in_figures": {"true" if used else "false"}}}'
        for number, used in enumerate(found.used.tolist())
    ]
    args.append('{"in_figures": false}')  # of no iteration
    for number, lane in enumerate(found.lanes, 1):
        yield from _named("thread", _PROCESS, number, _TITLES[lane.kind], number)
        names, codes = _names(lane)
        for name, start, end, row in _rows(codes, lane.start, lane.end, lane.iteration):
            yield _slice(names[name], _PROCESS, number, start, end - start, args[row])


def _names(lane: Spans) -> tuple[list[str], Any]:
    """Names as JSON, and which of them each interval has."""
    if lane.names is None:
        noun = _NOUNS[lane.kind]
        return [_quoted(f"{noun} {row}") for row in range(lane.iteration.max() + 1)], lane.iteration
    causes: dict[Any, str] = dict(CAUSES)
    return [_quoted(causes[name]) for name in lane.names.texts], lane.names.codes


def _columns(trace: Trace) -> Iterator[str]:
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
        names = list(map(_quoted, table[c.NAME].texts))
        columns = [table[column] for column in (c.START, c.DUR, process, thread)]
        flows = table[c.CORRELATION] if has_flow else table[c.DUR] * 0
        for name, start, dur, pid, tid, flow in _rows(table[c.NAME].codes, *columns, flows):
            yield _slice(names[name], pid, tid, start, dur, category=category)
            if flow > 0 and flow in launched:
                ends = f'"ts": {_us(start)}, "id": {flow}' + (', "bp": "e"' if is_device else "")
                yield _event("f" if is_device else "s", '"launch"', pid, tid, ends, "launch")


def _rows(*columns: Any) -> Iterator[tuple[Any, ...]]:
    """Rows of NumPy columns as Python values, of which only a block exists at a time."""
    for at in range(0, len(columns[0]), _BLOCK):
        yield from zip(*(column[at : at + _BLOCK].tolist() for column in columns))


def _named(kind: str, process: int, thread: int, name: str, place: int) -> Iterator[str]:
    """The name of a process or thread, and its place among the others."""
    args = {"name": f'"name": {_quoted(name)}', "sort_index": f'"sort_index": {place}'}
    for field, value in args.items():
        yield _event("M", f'"{kind}_{field}"', process, thread, f'"args": {{{value}}}')


def _slice(
    name: str, process: int, thread: int, start: int, length: int,
    args: str = "{}", category: str = "launchscope",
) -> str:  # fmt: skip
    times = f'"ts": {_us(start)}, "dur": {_us(length)}, "args": {args}'
    return _event("X", name, process, thread, times, category)


def _event(
    phase: str, name: str, process: int, thread: int, rest: str, category: str = "launchscope"
) -> str:
    """One event, with its name as JSON and `rest` for its other fields."""
    return (
        f'{{"ph": "{phase}", "cat": "{category}", "name": {name}, "pid": {process}, '
        f'"tid": {thread}, {rest}}}'
    )


def _us(ns: int) -> str:
    """Exact to the last nanosecond."""
    whole, part = divmod(abs(ns), 1000)
    return f"{'-' if ns < 0 else ''}{whole}.{part:03d}"


def _quoted(name: str) -> str:
    return inert_json(msgspec.json.encode(encodable(name))).decode()


REPORTER = Reporter(
    "perfetto",
    (".perfetto.json", ".perfetto.json.gz"),
    {Profile: render},
    exact=True,
    shows_trace=True,
)
