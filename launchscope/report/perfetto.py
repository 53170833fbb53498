"""A trace for ui.perfetto.dev and chrome://tracing, in the Trace Event Format: its own events, byte
for byte, and launchscope's lanes as one more process.

The file is copied block by block, and the lanes are added behind its last event. A trace that is no
JSON is written from its columns; a Profile without its trace shows its typical steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, cast

import msgspec

from launchscope.errors import UsageError
from launchscope.frozen import dataclass
from launchscope.host import Blocks
from launchscope.model import IdleCause, Profile, Timelines
from launchscope.report import RenderOptions, Reporter
from launchscope.report.documents.labels import CAUSES
from launchscope.report.figures.timeline import LANES
from launchscope.report.kernel_names import short_name
from launchscope.visible import encodable, inert_json

if TYPE_CHECKING:
    from launchscope.analysis.timeline.annotations import Annotations, SpanKind, Spans
    from launchscope.parser.trace import Insertion, Trace

_PROCESS = 2_000_000_000  # no process of Linux has such a number
_BLOCK = 4096  # events
# As Kineto writes it: the reader finds the end of an event by its bytes.
_BETWEEN = ",\n  "
_SPACE = b" \t\r\n"
_TITLES: dict[SpanKind, str] = {
    "iteration": "iterations, on the host",
    "step": "steps, on the host",
    "gpu": "iterations, on the GPU",
    "idle": "GPU idle, by cause",
    "exposed": "exposed collectives",
    "blocked": "back-pressure",
}
_NOUNS: dict[SpanKind, str] = {"iteration": "iteration", "step": "step", "gpu": "iteration"}
_OTHERS = "work of other iterations"
_HELD_UP = "launch call held up by a full queue"


@dataclass(frozen=True)
class Clock:
    """Writes times that are given in ns, exact to the last one."""

    ns_per_unit: int = 1000
    first_ns: int = 0

    def time(self, ns: int) -> str:
        return self.length(ns + self.first_ns)

    def length(self, ns: int) -> str:
        if self.ns_per_unit == 1:
            return str(ns)
        whole, part = divmod(abs(ns), 1000)
        return f"{'-' if ns < 0 else ''}{whole}.{part:03d}"


def render(profile: Profile, options: RenderOptions) -> Blocks:
    """JSON, in blocks. UsageError where no step was traced."""
    found, timelines = options.trace, profile.timelines
    if found is not None and found.insertion is not None:
        insertion = found.insertion
        clock = Clock(insertion.ns_per_unit, insertion.first_ns)
        return Blocks(lambda: _inserted(insertion, _lanes(found, clock)))
    if found is not None and found.trace is not None:
        trace, clock = found.trace, Clock()
        return Blocks(lambda: _document(chain(_columns(trace, clock), _lanes(found, clock))))
    if timelines is None:
        raise UsageError(
            "no step of this profile was traced, so there is nothing to show on a timeline",
            hint="name a trace, or a recording that launchscope profile --keep-trace made",
        )
    return Blocks(lambda: _document(_typical_steps(timelines)))


# --------------------------------------------------------------------------- the file


def _inserted(insertion: Insertion, events: Iterator[str]) -> Iterator[bytes]:
    """The file, with these events behind its own."""
    from launchscope.parser.decompress import decompress

    left, space, last, rest = insertion.end, b"", b"", b""
    blocks = decompress(insertion.path, [])
    while left and (block := next(blocks, b"")):
        own, rest = block[:left], block[left:]
        left -= len(own)
        text = own.rstrip(_SPACE)
        if text:
            yield space + text
            space, last = b"", text[-1:]
        space += own[len(text) :]
    yield from _joined(events, "\n  " if last in b",[" else _BETWEEN)
    yield space + (insertion.closing or rest)
    if not insertion.closing:
        yield from blocks


def _document(events: Iterator[str]) -> Iterator[bytes]:
    yield b'{"displayTimeUnit": "ms", "traceEvents": ['
    yield from _joined(events, "\n  ")
    yield b"\n]}\n"


def _joined(events: Iterator[str], before: str) -> Iterator[bytes]:
    """Blocks of events, with `before` before the first one."""
    while block := list(islice(events, _BLOCK)):
        yield f"{before}{_BETWEEN.join(block)}".encode()
        before = _BETWEEN


# ----------------------------------------------------------------------------- events


def _lanes(found: Annotations, clock: Clock) -> Iterator[str]:
    """What the analysis found, as a process beside those of the trace."""
    whose = f"GPU {found.device}" + (f", process {found.process}" if found.process else "")
    yield from _process(_PROCESS, f"launchscope: {whose}", -1)
    args = [
        f'{{"iteration": {number}, "in_figures": {"true" if used else "false"}}}'
        for number, used in enumerate(found.used.tolist())
    ]
    args.append('{"in_figures": false}')  # of no iteration
    for number, lane in enumerate(found.lanes, 1):
        title = _TITLES[lane.kind]
        title += f", thread {lane.thread}" if lane.thread is not None else ""
        yield from _thread(_PROCESS, number, title)
        names, codes = _names(lane)
        for name, start, end, row in _rows(codes, lane.start, lane.end, lane.iteration):
            yield _slice(clock, names[name], _PROCESS, number, start, end - start, args[row])
    for time, depth in _rows(found.depth_times, found.depth):
        waiting = f'"args": {{"launched, not finished": {depth}}}'
        yield _event("C", '"queue depth"', _PROCESS, 0, f'"ts": {clock.time(time)}, {waiting}')


def _names(lane: Spans) -> tuple[list[str], Any]:
    """Names as JSON, and which of them each interval has."""
    if lane.names is None:
        noun = _NOUNS.get(lane.kind)
        if noun is None:
            return [_quoted(_HELD_UP)], lane.iteration * 0
        return [_quoted(f"{noun} {row}") for row in range(lane.iteration.max() + 1)], lane.iteration
    shown: Callable[[Any], str] = CAUSES.__getitem__ if lane.kind == "idle" else short_name
    return [_quoted(shown(name)) for name in lane.names.texts], lane.names.codes


def _columns(trace: Trace, clock: Clock) -> Iterator[str]:
    """What host and devices did, with an arrow from each call to what it launched."""
    from launchscope.parser import columns as c

    launched = set(trace.activities[c.CORRELATION].tolist())
    tables = (
        (trace.ranges, "user_annotation", c.PID, c.TID),
        (trace.ops, "cpu_op", c.PID, c.TID),
        (trace.calls, "cuda_runtime", c.PID, c.TID),
        (trace.activities, "gpu", c.DEVICE, c.STREAM),
    )
    for device in sorted(set(trace.activities[c.DEVICE].tolist())):
        yield from _process(device, f"GPU {device}", device)
    for table, category, process, thread in tables:
        if c.NAME not in table.columns:  # operators whose names nobody asked for
            continue
        is_device, has_flow = table is trace.activities, c.CORRELATION in table.columns
        names = list(map(_quoted, table[c.NAME].texts))
        columns = [table[column] for column in (c.START, c.DUR, process, thread)]
        flows = table[c.CORRELATION] if has_flow else table[c.DUR] * 0
        for name, start, dur, pid, tid, flow in _rows(table[c.NAME].codes, *columns, flows):
            yield _slice(clock, names[name], pid, tid, start, dur, category=category)
            if flow > 0 and flow in launched:
                ends = f'"ts": {clock.time(start)}, "id": {flow}' + (
                    ', "bp": "e"' if is_device else ""
                )
                yield _event("f" if is_device else "s", '"launch"', pid, tid, ends, "launch")


def _typical_steps(timelines: Timelines) -> Iterator[str]:
    """The lanes of the timeline, one process for each step."""
    names = [
        _quoted(label.name or CAUSES.get(cast("IdleCause", label.kind), _OTHERS))
        for label in timelines.labels
    ]
    steps = {"eager": timelines.eager, "replayed": timelines.replay}
    clock = Clock()
    for process, (which, step) in enumerate(steps.items(), 1):
        if step is None:
            continue
        yield from _process(process, f"launchscope: typical {which} {step.what}", process)
        for thread, lane in enumerate(step.lanes, 1):
            title = _TITLES["idle"] if lane.kind == "idle" else _OTHERS
            if lane.number is not None:
                of = " " if lane.kind == "gpu" else ", thread "
                title = f"{LANES[lane.kind]}{of}{lane.number}"
            yield from _thread(process, thread, title)
            counts = lane.count or (1,) * len(lane.start_ns)
            for start, dur, label, count in zip(
                lane.start_ns, lane.duration_ns, lane.label, counts
            ):
                args = f'{{"intervals": {count}}}'
                yield _slice(clock, names[label], process, thread, start, dur, args)


def _rows(*columns: Any) -> Iterator[tuple[Any, ...]]:
    """Rows of NumPy columns as Python values, of which only a block exists at a time."""
    for at in range(0, len(columns[0]), _BLOCK):
        yield from zip(*(column[at : at + _BLOCK].tolist() for column in columns))


def _process(process: int, name: str, place: int) -> Iterator[str]:
    name = f'"args": {{"name": {_quoted(name)}}}'
    yield _event("M", '"process_name"', process, 0, name)
    yield _event("M", '"process_sort_index"', process, 0, f'"args": {{"sort_index": {place}}}')


def _thread(process: int, thread: int, name: str) -> Iterator[str]:
    name = f'"args": {{"name": {_quoted(name)}}}'
    yield _event("M", '"thread_name"', process, thread, name)
    yield _event("M", '"thread_sort_index"', process, thread, f'"args": {{"sort_index": {thread}}}')


def _slice(
    clock: Clock, name: str, process: int, thread: int, start: int, length: int,
    args: str = "{}", category: str = "launchscope",
) -> str:  # fmt: skip
    times = f'"ts": {clock.time(start)}, "dur": {clock.length(length)}, "args": {args}'
    return _event("X", name, process, thread, times, category)


def _event(
    phase: str, name: str, process: int, thread: int, rest: str, category: str = "launchscope"
) -> str:
    """One event, with its name as JSON and `rest` for its other fields."""
    return (
        f'{{\n    "ph": "{phase}", "cat": "{category}", "name": {name}, "pid": {process}, '
        f'"tid": {thread},\n    {rest}\n  }}'
    )


def _quoted(name: str) -> str:
    return inert_json(msgspec.json.encode(encodable(name))).decode()


REPORTER = Reporter(
    "perfetto",
    (".perfetto.json", ".perfetto.json.gz"),
    {Profile: render},
    exact=True,
    shows_trace=True,
)
