"""Times consecutive steps with nothing else going on: no profiler, no synchronisation inside."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

from launchscope.model import TimingResult
from launchscope.runner.context import Context
from launchscope.runner.events import EventRecorder
from launchscope.runner.passes import PassBase


class TimingPass(PassBase):
    """CUDA events and host clocks around each step, read after the pass."""

    name = "timing"
    order = 10
    ends_only = True

    def start(self, context: Context) -> None:
        super().start(context)
        cuda = context.torch.cuda
        self._wanted = self.steps(context)
        self._recorder = EventRecorder(context.torch, 2 * self._wanted)
        self._events: list[Any] = []
        self._host_begin: list[int] = []
        self._host_end: list[int] = []
        self._kind: list[int] = []
        opening = cuda.Event(enable_timing=True)
        cuda.synchronize()
        self._host_open = perf_counter_ns()
        opening.record()
        self._opening = opening

    def begin(self) -> None:
        index = len(self._host_end)
        del self._host_begin[index:]  # a step that was begun and not ended does not count
        self._host_begin.append(perf_counter_ns())
        del self._events[2 * index :]
        self._events.append(self._recorder.record())

    def end(self) -> bool:
        index = len(self._host_end)
        self._events.append(self._recorder.record())
        self._host_end.append(perf_counter_ns())
        self._kind.append(self.context.kind())
        return index + 1 >= self._wanted

    def finish(self, complete: bool) -> Any:
        self.context.torch.cuda.synchronize()
        closed = perf_counter_ns()
        steps = len(self._host_end)
        if steps == 0:
            return None
        if not complete:  # the script went on to other things before it ended
            closed = self._host_end[-1]
        since = [self._opening.elapsed_time(event) for event in self._events[: 2 * steps]]
        return TimingResult(
            host_open_ns=self._host_open,
            host_begin_ns=tuple(self._host_begin[:steps]),
            host_end_ns=tuple(self._host_end),
            host_close_ns=closed,
            gpu_begin_ms=tuple(since[0::2]),
            gpu_end_ms=tuple(since[1::2]),
            kind=tuple(self._kind) if self.context.boundary.kinds else (),
            complete=complete,
        )


PASS = TimingPass
