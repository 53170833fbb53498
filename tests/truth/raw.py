"""What a Kineto file says of its marked steps, by json and loops alone: no code of launchscope.

An iteration lasts from the GPU's end of the step before to its own end. The
first mark is no iteration.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

Span = tuple[int, int]
CAUSES = ("dispatch", "data", "sync", "framework", "launch_call", "pause", "unsure")


@dataclass
class Work:
    """A kernel, copy or set, with the call that launched it."""

    begin: int
    end: int
    name: str
    is_kernel: bool
    number: str  # that correlates it with its call
    stream: int
    call: Call | None = None


@dataclass
class Call:
    begin: int
    end: int
    name: str
    thread: int
    work: list[Work] = field(default_factory=list)

    @property
    def waits(self) -> bool:
        return any("Pageable" in work.name for work in self.work)


@dataclass
class Iteration:
    """Of one mark; `idle` is in milliseconds by cause, of which `unsure` is no part."""

    name: str
    begin: int  # of the mark, on the host
    free: int  # when the GPU was through with what was launched before
    work: list[Work]
    traced_ms: float
    idle: dict[str, float]
    recorded: int  # operators and calls on the host

    @property
    def calls(self) -> list[Call]:
        return list({id(work.call): work.call for work in self.work if work.call}.values())

    @property
    def in_step(self) -> list[Work]:
        return [work for work in self.work if work.call and work.call.begin >= self.begin]

    def launches(self, *, graphs: bool = False) -> int:
        """Calls that launched one kernel or a graph."""
        found = [
            c for c in self.calls if c.begin >= self.begin and any(w.is_kernel for w in c.work)
        ]
        return sum((("GraphLaunch" in call.name) == graphs) for call in found)


def union(spans: list[Span]) -> list[Span]:
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def length(spans: list[Span]) -> int:
    return sum(end - begin for begin, end in union(spans))


def inside(spans: list[Span], begin: int, end: int) -> int:
    """How much of one span the others cover."""
    return length([(max(b, begin), min(e, end)) for b, e in spans if b < end and e > begin])


def busy_ms(work: list[Work]) -> float:
    return length([(each.begin, each.end) for each in work]) / 1e6


def ns(text: str) -> int:
    """Microseconds as nanoseconds, without an error of rounding."""
    whole, _, rest = text.partition(".")
    return int(whole + f"{rest:0<3}"[:3])


@dataclass
class File:
    calls: list[Call]
    work: list[Work]
    ranges: list[tuple[int, int, str, int]]  # begin, end, name, thread
    recorded: list[int]  # begins of operators and calls


@cache
def file_of(path: Path) -> File:
    text = gzip.decompress(path.read_bytes())
    events = json.loads(text, parse_float=str, parse_int=str)["traceEvents"]
    events = [event for event in events if event.get("ph") == "X" and "dur" in event]
    outer: dict[str, Call] = {}
    found = File([], [], [], [])
    for event in sorted(events, key=lambda event: ns(event["ts"])):
        begin, kind, name = ns(event["ts"]), event.get("cat"), event["name"]
        end = begin + ns(event["dur"])
        if kind in ("cuda_runtime", "cuda_driver"):
            call = Call(begin, end, name, int(event["tid"]))
            found.calls.append(call)
            outer.setdefault(event["args"].get("correlation", str(id(call))), call)
        if kind in ("cuda_runtime", "cuda_driver", "cpu_op"):
            found.recorded.append(begin)
        if kind == "user_annotation":
            found.ranges.append((begin, end, name, int(event["tid"])))
        if kind in ("kernel", "gpu_memcpy", "gpu_memset"):
            number = event["args"]["correlation"]
            found.work.append(
                Work(begin, end, name, kind == "kernel", number, int(event["args"]["stream"]))
            )
    for work in found.work:
        work.call = outer.get(work.number)
        if work.call is not None:
            work.call.work.append(work)
    return found


def iterations(path: Path, mark: str) -> list[Iteration]:
    """All but the first of the marks."""
    file = file_of(path)
    marks = [each for each in file.ranges if each[2].startswith(mark)]
    gaps = _gaps(file)
    found, before = [], marks[0][1]
    reach = max((w.end for w in file.work if w.call and w.call.begin < before), default=0)
    for begin, end, name, _ in marks[1:]:
        own = [work for work in file.work if work.call and before <= work.call.begin < end]
        through = max(work.end for work in own)
        idle = Counter(dict.fromkeys(CAUSES, 0))
        for call, parts in gaps:
            if before <= call.begin < end:
                idle.update(parts)
        recorded = sum(before <= time < end for time in file.recorded)
        shares = {cause: total / 1e6 for cause, total in idle.items()}
        early = [work.end for work in own if work.call and work.call.begin < begin]
        free = max([reach, *early])
        traced = (through - reach) / 1e6
        found.append(Iteration(name, begin, free, own, traced, shares, recorded))
        before, reach = end, through
    return found


def _gaps(file: File) -> list[tuple[Call, dict[str, int]]]:
    """The idle times of the GPU with the call that ended each, and what the host did."""
    waits = sorted(filter(None, map(_wait, file.calls)), key=lambda wait: wait[1].end)
    launching = [call for call in file.calls if call.work]
    left = [_waited(begin, wait, launching) for begin, wait in waits]
    idle, reach = [], file.work[0].end
    for work in file.work[1:]:
        if work.begin > reach and work.call is not None:
            idle.append((reach, work.begin, work.call))
        reach = max(reach, work.end)
    found = []
    for begin, end, call in sorted(idle, key=lambda gap: gap[2].begin):
        if call.end <= begin:
            found.append((call, {"dispatch": end - begin}))
            continue
        until = min(end, call.begin)
        loading = [(b, e) for b, e, name, of in file.ranges if _loads(name) and of == call.thread]
        data = inside(loading, begin, until)
        sync = inside([(at, w.end) for at, w in waits if w.thread == call.thread], begin, until)
        own = [(each.begin, each.end) for each in launching if each.thread == call.thread]
        in_call = max(end - max(call.end, begin), 0) + inside(own, begin, min(end, call.end))
        rest = end - begin - data - sync
        # A wait leaves the host behind by as long as it lasted.
        last = [row for row, (_, wait) in enumerate(waits) if wait.end <= call.begin][-1:]
        charged = min(rest, left[last[0]]) if last else 0
        for row in last:
            left[row] -= charged
        pause, unsure = _pause(rest - charged)
        late = rest - charged - pause
        launch_call = round(late * min(in_call / max(rest, 1), 1.0))
        found.append((call, {
            "data": data, "sync": sync + charged, "pause": pause, "unsure": unsure,
            "launch_call": launch_call, "framework": late - launch_call,
        }))  # fmt: skip
    return found


def _loads(name: str) -> bool:
    return name.startswith("enumerate(DataLoader)")


def _pause(late: int) -> tuple[int, int]:
    """The mean of the least and the most of a gap that is no launch overhead, and how far these
    are apart: most grows from 1 to 2 ms, least from 2 to 10 ms."""
    most, least = (
        late * min(max((late / 1e6 - low) / (high - low), 0.0), 1.0)
        for low, high in ((1, 2), (2, 10))
    )
    return round((most + least) / 2), round(most - least)


def _wait(call: Call) -> tuple[int, Call] | None:
    """From when on a call waits for the GPU, if it does: a copy to pageable memory once it runs."""
    if re.match(r"cuda(Device|Stream|Event)Synchronize", call.name):
        return call.begin, call
    copies = [work for work in call.work if "Pageable" in work.name]
    return (min(max(copies[0].begin, call.begin), call.end), call) if copies else None


def _waited(begin: int, call: Call, launching: list[Call]) -> int:
    ends = [work.end for each in launching if each.begin < call.begin for work in each.work]
    return max(min(max(ends, default=0), call.end) - call.begin, 0)
