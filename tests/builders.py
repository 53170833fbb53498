"""Builds traces and recordings with known answers.

    trace().step().op("aten::add").launch(kernel_us=3, delay_us=8).end()

A host clock moves with every call that takes host time; kernels queue up on their stream. The
builder keeps no statistics of its own: a test states the answer it expects.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from launchscope.analysis.steps.iterations import find_iterations
from launchscope.analysis.steps.steps import steps_of
from launchscope.analysis.timeline.timeline import build_timeline
from launchscope.analysis.timeline.work import Work, gather
from launchscope.model import (
    CALIBRATION_RANGE,
    STEP_RANGE,
    Calibration,
    Environment,
    Recording,
    Schedule,
    Target,
    TimingResult,
    TraceResult,
)
from launchscope.parser import read_trace
from launchscope.parser.launches import find_launches
from launchscope.parser.trace import Trace

PID, MAIN, STREAM = 403, 403, 13


class TraceBuilder:
    """One process, one GPU. All times are microseconds; every method returns the builder."""

    def __init__(self, start_us: float = 1_000_000.0) -> None:
        self.events: list[dict[str, Any]] = []
        self.host = start_us
        self._free: dict[int, float] = {}
        self._correlation = 0
        self._steps = 0
        self._external = 0
        self._open_step: float | None = None
        self._open_op: tuple[str, float, int] | None = None

    # ------------------------------------------------------------------ host side

    def step(self) -> TraceBuilder:
        """Ends the open step, if any, and begins the next."""
        self.end()
        self._open_step = self.host
        return self

    def end(self) -> TraceBuilder:
        """Ends the open step."""
        self._end_op()
        if self._open_step is not None:
            self.span(f"{STEP_RANGE}#{self._steps}", self._open_step, self.host)
            self._steps += 1
            self._open_step = None
        return self

    def work(self, us: float) -> TraceBuilder:
        """Host time in which nothing of interest happens."""
        self.host += us
        return self

    def op(self, name: str) -> TraceBuilder:
        """An operator that lasts until the next one, or the end of the step."""
        self._end_op()
        self._external += 1
        self._open_op = (name, self.host, self._external)
        return self

    def inside(self, name: str, body: Callable[[TraceBuilder], object], *, tid: int = MAIN,
               category: str = "cpu_op",
               arguments: dict[str, Any] | None = None) -> TraceBuilder:  # fmt: skip
        """What `body` adds lies in an operator, or in another event of the host."""
        begin = self.host
        body(self)
        return self._event(category, name, begin, self.host - begin, PID, tid, arguments or {})

    def data(self, us: float) -> TraceBuilder:
        """Time in the data loader."""
        self.span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", self.host,
                  self.host + us)  # fmt: skip
        return self.work(us)

    def optimizer(self, body: Callable[[TraceBuilder], object], kind: str = "SGD") -> TraceBuilder:
        """What `body` adds lies in an optimizer's step."""
        begin = self.host
        body(self)
        return self.span(f"Optimizer.step#{kind}.step", begin, self.host)

    def sync(self, call_us: float = 2, *, api: str = "cudaStreamSynchronize",
             wake_us: float = 1, tid: int = MAIN) -> TraceBuilder:  # fmt: skip
        """Waits until every stream is through, and `wake_us` more."""
        begin = self.host
        through = max(self._free.values(), default=0.0)
        self.host = max(begin + call_us, through + wake_us if through > begin else 0.0)
        return self._call(api, begin, self.host - begin, tid, self._next())

    def calibration(self, us: float = 100) -> TraceBuilder:
        """The profiler's own loop: one launch in a range of its own."""
        self.end()
        begin = self.host
        self.launch(kernel_us=1).work(us)
        return self.span(CALIBRATION_RANGE, begin, self.host)

    # -------------------------------------------------------------------- launches

    def launch(self, kernel_us: float = 3, delay_us: float = 5, *, call_us: float = 4,
               name: str = "kernel", api: str = "cudaLaunchKernel", stream: int = STREAM,
               tid: int = MAIN) -> TraceBuilder:  # fmt: skip
        """A launch call; its kernel starts `delay_us` after the call began, or when it can."""
        correlation = self._launch_call(api, call_us, tid)
        begin = self.host - call_us + delay_us
        shape = {"grid": [4, 1, 2], "block": [128, 1, 1]}
        return self._run("kernel", name, begin, kernel_us, correlation, stream, shape)

    def record(self, *, api: str = "cudaEventRecord") -> TraceBuilder:
        """An event, behind what its stream was given."""
        self._launch_call(api, 1, MAIN)
        return self

    def graph(self, kernels: Sequence[tuple[str, float]], *, call_us: float = 20,
              delay_us: float = 25, gap_us: float = 0) -> TraceBuilder:  # fmt: skip
        """One graph launch that runs these (name, us) kernels."""
        correlation = self._launch_call("cudaGraphLaunch", call_us, MAIN)
        begin = self.host - call_us + delay_us
        for name, us in kernels:
            self._run("kernel", name, begin, us, correlation, STREAM, {})
            begin = self._free[STREAM] + gap_us
        return self

    def memset(self, us: float = 1, delay_us: float = 5, *, call_us: float = 4) -> TraceBuilder:
        correlation = self._launch_call("cudaMemsetAsync", call_us, MAIN)
        begin = self.host - call_us + delay_us
        return self._run("gpu_memset", "Memset (Device)", begin, us, correlation, STREAM,
                         {"bytes": 16})  # fmt: skip

    def memcpy(self, us: float = 2, delay_us: float = 5, *, call_us: float = 4,
               name: str = "Memcpy HtoD (Pinned -> Device)", size: int = 4096,
               blocking: bool = False, stream: int = STREAM,
               tid: int = MAIN) -> TraceBuilder:  # fmt: skip
        """A copy; with `blocking` the call lasts until the copy is done."""
        correlation = self._next()
        begin = self.host
        self._run("gpu_memcpy", name, begin + delay_us, us, correlation, stream, {"bytes": size})
        duration = max(call_us, self._free[stream] - begin) if blocking else call_us
        self.host += duration
        return self._call("cudaMemcpyAsync", begin, duration, tid, correlation)

    def orphan(self, us: float = 3, name: str = "orphan") -> TraceBuilder:
        """A kernel whose launch is not in the trace."""
        return self._run("kernel", name, self.host, us, self._next(), STREAM, {})

    # ---------------------------------------------------------------------- results

    def span(self, name: str, begin: float, end: float, tid: int = MAIN) -> TraceBuilder:
        """A user annotation."""
        return self._event("user_annotation", name, begin, end - begin, PID, tid, {})

    def document(self) -> dict[str, Any]:
        """The trace as Kineto would write it."""
        self.end()
        return {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "Imaginary GPU"}],
            "displayTimeUnit": "ms",
            "baseTimeNanoseconds": 1_790_857_026_000_000_000,
            "traceEvents": self.events,
        }

    def write(self, path: Path) -> Path:
        path.write_text(json.dumps(self.document()))
        return path

    def trace(self) -> Trace:
        """The trace as the parser reads it."""
        with tempfile.TemporaryDirectory() as folder:
            return read_trace(self.write(Path(folder) / "trace.kineto.json"))

    # ----------------------------------------------------------------------- inside

    def _next(self) -> int:
        self._correlation += 1
        return self._correlation

    def _end_op(self) -> None:
        if self._open_op is not None:
            name, begin, external = self._open_op
            self._open_op = None
            self._event("cpu_op", name, begin, self.host - begin, PID, MAIN,
                        {"External id": external})  # fmt: skip

    def _launch_call(self, api: str, call_us: float, tid: int) -> int:
        correlation = self._next()
        begin = self.host
        self.host += call_us
        self._call(api, begin, call_us, tid, correlation)
        return correlation

    def _call(self, api: str, begin: float, us: float, tid: int, correlation: int) -> TraceBuilder:
        category = "cuda_driver" if api.startswith("cu") and api[2].isupper() else "cuda_runtime"
        arguments: dict[str, Any] = {"cbid": 211, "correlation": correlation}
        if self._open_op is not None:
            arguments["External id"] = self._open_op[2]
        return self._event(category, api, begin, us, PID, tid, arguments)

    def _run(self, category: str, name: str, begin: float, us: float, correlation: int,
             stream: int, more: dict[str, Any]) -> TraceBuilder:  # fmt: skip
        begin = max(begin, self._free.get(stream, 0.0))
        self._free[stream] = begin + us
        arguments = {"device": 0, "stream": stream, "correlation": correlation, **more}
        return self._event(category, name, begin, us, 0, stream, arguments)

    def _event(self, category: str, name: str, begin: float, us: float, pid: int, tid: int,
               arguments: dict[str, Any]) -> TraceBuilder:  # fmt: skip
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid,
             "ts": round(begin, 3), "dur": round(us, 3), "args": arguments}
        )  # fmt: skip
        return self


def of_another_process(built: TraceBuilder, pid: int, device: int) -> list[dict[str, Any]]:
    """The events of a trace as those of a process with a GPU of its own, to be merged."""
    built.end()
    for event in built.events:
        if "device" in event["args"]:
            event["pid"] = event["args"]["device"] = device
        else:
            event["pid"] = pid
    return built.events


def trace(start_us: float = 1_000_000.0) -> TraceBuilder:
    """An empty trace."""
    return TraceBuilder(start_us)


def loop_trace(
    steps: int,
    body: Callable[[TraceBuilder], object],
    between: Callable[[TraceBuilder], object] = lambda builder: None,
) -> TraceBuilder:
    """`steps` equal steps, with `between` after each."""
    builder = trace()
    for _ in range(steps):
        builder.step()
        body(builder)
        builder.end()
        between(builder)
    return builder


def timing(
    *,
    steps: int = 30,
    iteration_ms: float = 3.0,
    step_ms: float = 2.5,
    host_ms: float | None = None,
    host_iteration_ms: float | None = None,
    jitter_ms: float = 0.0,
) -> TimingResult:
    """A timing pass of equal steps, every other one longer by `jitter_ms`."""
    host_step = step_ms if host_ms is None else host_ms
    host_period = iteration_ms if host_iteration_ms is None else host_iteration_ms
    extra = [jitter_ms * (index % 2) for index in range(steps)]
    ends, host_ends = [], []
    now, host_now = 0.0, 0.0
    for more in extra:
        now, host_now = now + iteration_ms + more, host_now + host_period + more
        ends.append(now)
        host_ends.append(host_now)
    opened = 1_000_000_000
    ns = [opened + round(end * 1e6) for end in host_ends]
    return TimingResult(
        host_open_ns=opened,
        host_begin_ns=tuple(end - round(host_step * 1e6) for end in ns),
        host_end_ns=tuple(ns),
        host_close_ns=opened + round(ends[-1] * 1e6),
        gpu_begin_ms=tuple(end - step_ms for end in ends),
        gpu_end_ms=tuple(ends),
    )


def recording(directory: Path, built: TraceBuilder | None = None, **changes: Any) -> Recording:
    """A recording whose trace, if one is given, is written to `directory`."""
    result = None
    if built is not None:
        built.write(directory / "trace.kineto.json")
        result = TraceResult("trace.kineto.json", 4, 1, True, Calibration(6.0, 6.0, 500))
    fields: dict[str, Any] = {
        "target": Target("script", "train.py"),
        "environment": Environment(device="Imaginary GPU"),
        "mode": "gpu",
        "schedule": Schedule(),
        "directory": str(directory),
        "trace": result,
        **changes,
    }
    return Recording(**fields)


def work_of(built: TraceBuilder) -> Work:
    """The work of the trace's marked steps."""
    read = built.trace()
    iterations = find_iterations(read)
    assert iterations is not None
    return gather(read, iterations)


def known(value: float | None) -> float:
    """A figure that has to be there."""
    assert value is not None
    return value


def traced_iteration_ms(read: Trace) -> float:
    """The median iteration of a trace as it was recorded, on the GPU's clock."""
    joined = find_launches(read)
    iterations = steps_of(read, joined).iterations
    return float(np.median(build_timeline(gather(read, iterations, joined)).traced_iteration))
