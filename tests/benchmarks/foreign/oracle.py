"""What a trace file says, by json, sqlite3 and numpy alone: shares no code with launchscope.

`python -m tests.benchmarks.foreign.oracle FOLDER` counts every trace of the sample that `obtain`
put into FOLDER and writes `facts.json`. Times are microseconds.
"""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
import sys
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

KINDS = {
    "kernel": "kernel",
    "concurrent_kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
    "mtia_ccp_events": "kernel",
}
CALLS = {
    "cuda_runtime",
    "cuda_driver",
    "runtime",
    "driver",
    "hip_runtime",
    "mtia_runtime",
    "xpu_runtime",
}
SYNCHRONIZES = re.compile(r"^(cuda|cu|hip)\w*Synchronize")
GRAPH_LAUNCHES = re.compile(r"^(cuda|cu|hip)GraphLaunch")
BLOCKING_COPY = re.compile(r"^(cuda|cu|hip)Memcpy(?!\w*(Async|Peer))")
CAPTURES = re.compile(r"^(cuda|cu|hip)StreamBeginCapture")
COLLECTIVE = re.compile(
    r"nccl|rccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|multimem", re.I
)


@dataclass
class Work:
    """One device activity."""

    begin: float
    end: float
    kind: str
    name: str
    device: str
    stream: str
    correlation: int | None
    process: str = ""
    graph: bool = False


@dataclass
class Call:
    """One call of the runtime or the driver."""

    begin: float
    end: float
    name: str
    process: str
    thread: str
    correlation: int | None


@dataclass
class Recording:
    """The events of a file, before anything is counted."""

    work: list[Work] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    marks: Counter[str] = field(default_factory=Counter)
    categories: Counter[str] = field(default_factory=Counter)
    gpus: list[str] = field(default_factory=list)
    rank: int | None = None
    world: int | None = None
    torch: str | None = None
    damage: str | None = None


def read(path: Path) -> Recording:
    """Read a Kineto file, compressed or not, or an export of Nsight Systems."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (EOFError, OSError) as error:
            return Recording(damage=f"gzip: {error}")
    return read_nsys(path) if data[:6] == b"SQLite" else read_kineto(data)


def number(value: object) -> Decimal | None:
    try:
        return Decimal(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, ArithmeticError):
        return None


def whole(value: object) -> int | None:
    found = number(value)
    return None if found is None else int(found)


def mark_name(name: str) -> str:
    """The name of an annotation without its numbers: the marks of a loop have one name."""
    return re.sub(r"\d+", "#", name)[:60]


def read_kineto(data: bytes) -> Recording:
    recording = Recording()
    try:
        document = json.loads(data, strict=False, parse_float=Decimal)
    except ValueError as error:
        recording.damage = f"json: {error}"
        return recording
    events = document if isinstance(document, list) else document.get("traceEvents", [])
    if isinstance(document, dict):
        properties = document.get("deviceProperties") or document.get("computeProperties") or []
        recording.gpus = [str(each.get("name")) for each in properties]
        distributed = document.get("distributedInfo") or {}
        recording.rank, recording.world = distributed.get("rank"), distributed.get("world_size")
        recording.torch = document.get("pytorch_version") or document.get("torch_version")
    zero: Decimal | None = None
    for event in events:
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        category = str(event.get("cat", "")).lower()
        recording.categories[category] += 1
        stamp, duration = number(event.get("ts")), number(event.get("dur"))
        if stamp is None:
            continue
        # Microseconds since 1970 with three decimals do not fit into a float: the first is zero.
        zero = stamp if zero is None else zero
        begin = float(stamp - zero)
        end = float(stamp - zero + (duration or 0))
        arguments: dict[str, Any] = event.get("args") or {}
        correlation = whole(arguments.get("correlation"))
        name = str(event.get("name"))
        if category in KINDS:
            device = str(arguments.get("device", event.get("pid")))
            stream = str(arguments.get("stream", event.get("tid")))
            graph = bool(whole(arguments.get("graph id")) or whole(arguments.get("graph node id")))
            recording.work.append(
                Work(begin, end, KINDS[category], name, device, stream, correlation, graph=graph)
            )
        elif category in CALLS:
            process, thread = str(event.get("pid")), str(event.get("tid"))
            recording.calls.append(Call(begin, end, name, process, thread, correlation))
        elif category == "user_annotation" or (
            name.startswith("ProfilerStep#") and category != "gpu_user_annotation"
        ):
            recording.marks[mark_name(name)] += 1
    return recording


def read_nsys(path: Path) -> Recording:
    recording = Recording()
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    names = {
        each[0] for each in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")
    }

    def rows(table: str, *columns: str) -> list[tuple[Any, ...]]:
        """The columns of the table; a column it lacks is None; no rows where it is absent."""
        if table not in names:
            return []
        have = {each[1] for each in connection.execute(f'PRAGMA table_info("{table}")')}
        chosen = ", ".join(f'"{each}"' if each in have else "NULL" for each in columns)
        return connection.execute(f'SELECT {chosen} FROM "{table}"').fetchall()

    strings = dict(rows("StringIds", "id", "value"))
    recording.gpus = [str(each[0]) for each in rows("TARGET_INFO_GPU", "name")]
    prefix = "CUPTI_ACTIVITY_KIND_"
    for table, kind, name in (
        ("KERNEL", "kernel", "demangledName"),
        ("MEMCPY", "memcpy", "copyKind"),
        ("MEMSET", "memset", "value"),
        ("GRAPH_TRACE", "graph", "graphId"),
    ):
        columns = (
            "start",
            "end",
            name,
            "deviceId",
            "streamId",
            "correlationId",
            "globalPid",
            "graphNodeId",
            "srcKind",
            "dstKind",
        )
        for start, end, named, device, stream, correlation, process, node, *memory in rows(
            prefix + table, *columns
        ):
            title = str(strings.get(named, named) if kind == "kernel" else f"{kind} {named}")
            title += " Pageable" if kind == "memcpy" and 0 in memory else ""
            recording.work.append(
                Work(start / 1e3, end / 1e3, kind, title, str(device), str(stream), correlation,
                     str((process or 0) >> 24), bool(node) or kind == "graph")
            )  # fmt: skip
            recording.categories[kind] += 1
    for start, end, named, thread, correlation in rows(
        prefix + "RUNTIME", "start", "end", "nameId", "globalTid", "correlationId"
    ):
        title = re.sub(r"_v\d+$", "", str(strings.get(named, named)))
        process = str((thread or 0) >> 24)
        recording.calls.append(
            Call(start / 1e3, end / 1e3, title, process, str(thread), correlation)
        )
        recording.categories["runtime"] += 1
    for text, named, kind in rows("NVTX_EVENTS", "text", "textId", "eventType"):
        if kind in (59, 60):
            recording.marks[mark_name(str(text or strings.get(named)))] += 1
    return recording


def count(recording: Recording) -> dict[str, Any]:
    """The facts of a recording. None is what cannot be told."""
    work, calls = recording.work, recording.calls
    facts: dict[str, Any] = {
        "damage": recording.damage,
        "gpus": dict(Counter(recording.gpus)),
        "torch": recording.torch,
        "rank": recording.rank,
        "world": recording.world,
        "categories": dict(recording.categories.most_common(12)),
        "marks": dict(recording.marks.most_common(12)),
        "processes": len({each.process for each in calls}),
        "threads": len({each.thread for each in calls}),
        "activities": dict(Counter(each.kind for each in work)),
        "calls": len(calls),
    }
    of_call: dict[tuple[str, int | None], Call] = {}
    by_correlation: dict[int | None, Call] = {}
    for call in sorted(calls, key=lambda each: each.begin):
        if call.correlation:
            of_call.setdefault((call.process, call.correlation), call)
            by_correlation.setdefault(call.correlation, call)
    launched = [
        (
            of_call.get((each.process, each.correlation))
            if each.process
            else by_correlation.get(each.correlation)
        )
        for each in work
    ]
    reached = {id(call) for call in launched if call}
    to_kernels = {
        id(call)
        for call, each in zip(launched, work, strict=True)
        if call and each.kind == "kernel"
    }
    graph_calls = {id(call) for call in calls if GRAPH_LAUNCHES.match(call.name)}
    graphed = [
        each.graph or id(call) in graph_calls for call, each in zip(launched, work, strict=True)
    ]
    facts |= {
        "launches": len(reached),
        "kernel_launches": len(to_kernels),
        "orphans": sum(call is None for call in launched),
        "sync_calls": dict(Counter(call.name for call in calls if SYNCHRONIZES.match(call.name))),
        "graph_launch_calls": sum(bool(GRAPH_LAUNCHES.match(call.name)) for call in calls),
        "captures": sum(bool(CAPTURES.match(call.name)) for call in calls),
        "graphed_activities": sum(graphed),
        "eager_launches": len(to_kernels - graph_calls),
        "graph_launches": len(reached & graph_calls),
        "called": kinds(work, [call is not None for call in launched]),
        "eager": kinds(
            work,
            [call is not None and id(call) not in graph_calls for call in launched],
        ),
        "host_waits": host_waits(calls, work, launched),
        "devices": {
            device: of_device(
                [
                    (each, call)
                    for each, call in zip(work, launched, strict=True)
                    if each.device == device
                ]
            )
            for device in sorted({each.device for each in work})
        },
    }
    ordered = sorted(work, key=lambda each: each.begin)
    facts["period"] = period([each.name for each in ordered])
    facts["top_calls"] = dict(Counter(call.name for call in calls).most_common(8))
    slow = sorted(calls, key=lambda each: each.begin - each.end)[:3]
    facts["longest_calls_us"] = [[each.name, round(each.end - each.begin)] for each in slow]
    return facts


def host_waits(calls: list[Call], work: list[Work], launched: list[Call | None]) -> int:
    """Synchronizations, and copies that block or use pageable memory. Such a copy and the
    synchronization that its thread makes next, before it launches anything, are one wait."""
    reached = {id(call) for call in launched}
    copies = {
        id(call)
        for each, call in zip(work, launched, strict=True)
        if call and each.kind == "memcpy"
        if "Pageable" in each.name or BLOCKING_COPY.match(call.name)
    }
    threads: dict[tuple[str, str], list[Call]] = {}
    for call in sorted(calls, key=lambda each: each.begin):
        if id(call) in reached or SYNCHRONIZES.match(call.name):
            threads.setdefault((call.process, call.thread), []).append(call)
    waits = 0
    for made in threads.values():
        for call, following in zip(made, [*made[1:], None], strict=True):
            merged = following is not None and SYNCHRONIZES.match(following.name)
            explicit = SYNCHRONIZES.match(call.name) is not None
            waits += explicit or (id(call) in copies and not merged)
    return waits


def kinds(work: list[Work], chosen: list[bool]) -> dict[str, int]:
    return dict(Counter(each.kind for each, take in zip(work, chosen, strict=True) if take))


def of_device(pairs: list[tuple[Work, Call | None]]) -> dict[str, Any]:
    """Busy time, gaps and delays of one device."""
    pairs = sorted(pairs, key=lambda each: each[0].begin)
    begins = np.array([each.begin for each, _ in pairs])
    ends = np.array([each.end for each, _ in pairs])
    called = np.array([np.nan if call is None else call.begin for _, call in pairs])
    through = np.maximum.accumulate(ends)
    gaps = np.maximum(begins[1:] - through[:-1], 0.0)
    idle, span = float(gaps.sum()), float(through[-1] - begins[0])
    late = np.clip(
        called[1:] - through[:-1], 0.0, gaps
    )  # of a gap, the part before its launch was called
    largest = np.sort(gaps)[::-1]
    durations = ends - begins
    collective = sum(each.end - each.begin for each, _ in pairs if COLLECTIVE.search(each.name))

    def gap(at: int) -> list[object]:
        """When the gap ends, how long it is, what ends it, and how long before that was called."""
        begin, after = float(begins[at + 1]), pairs[at + 1]
        delay = None if after[1] is None else round(begin - after[1].begin)
        return [round(begin - float(begins[0])), round(float(gaps[at])), after[0].name[:40], delay]

    return {
        "activities": len(pairs),
        "streams": len({each.stream for each, _ in pairs}),
        "busy": round(span - idle, 3),
        "span": round(span, 3),
        "idle": round(idle, 3),
        "gaps": int((gaps > 0).sum()),
        "gap_median": median(gaps[gaps > 0]),
        "idle_share_of_largest": {n: share(float(largest[:n].sum()), idle) for n in (1, 3, 10)},
        "idle_before_call_share": share(float(np.nansum(late)), idle),
        "idle_of_gaps_over_1ms_share": share(float(gaps[gaps > 1000].sum()), idle),
        "delay_median": median((begins - called)[~np.isnan(called)]),
        "kernel_median": median(durations),
        "collective_time": round(collective, 1),
        "largest_gaps": [gap(at) for at in np.argsort(gaps)[::-1][:3]],
    }


def period(names: list[str]) -> dict[str, Any] | None:
    """The distance at which the device activities repeat best, and the share that repeats."""
    identities = {name: at for at, name in enumerate(dict.fromkeys(names))}
    sequence = np.array([identities[name] for name in names])
    if len(sequence) < 8:
        return None
    counted = np.bincount(sequence)
    places = [
        np.flatnonzero(sequence == each) for each in np.argsort(counted)[:40] if counted[each] > 1
    ]
    candidates = {int(step) for place in places for step in np.diff(place)[:200]}
    candidates |= set(range(1, min(400, len(sequence) // 2)))
    best = (0.0, 0)
    for step in sorted(each for each in candidates if 0 < each <= len(sequence) // 2):
        same = float((sequence[step:] == sequence[:-step]).mean())
        if same > best[0] + 0.02:
            best = (same, step)
    return {"activities": best[1], "repeats": round(best[0], 3), "distinct": len(identities)}


def median(values: npt.NDArray[np.float64]) -> float | None:
    return round(float(np.median(values)), 3) if len(values) else None


def share(part: float, of: float) -> float | None:
    return round(part / of, 4) if of else None


def main() -> None:
    folder, here = Path(sys.argv[1]), Path(__file__).parent
    facts = {}
    for trace in json.loads((here / "sample.json").read_text())["traces"]:
        path = folder / trace["file"]
        facts[trace["file"]] = count(read(path)) if path.exists() else None
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in facts.items())
    (here / "facts.json").write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
