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
        self._wanted = wanted = self.steps(context)
        recorder = EventRecorder(context.torch)
        self._record = recorder.record
        # All there is to write to is made here: a step pays for as little as can be.
        self._gpu_begin, self._gpu_end = recorder.made(wanted), recorder.made(wanted)
        self._host_begin, self._host_end = [0] * wanted, [0] * wanted
        self._kind = [0] * wanted
        self._tells_kinds = bool(context.boundary.kinds)
        self._done = 0
        opening = cuda.Event(enable_timing=True)
        cuda.synchronize()
        self._host_open = perf_counter_ns()
        opening.record()
        self._opening = opening

    def begin(self) -> None:
        # A step that was begun and not ended is written over.
        index = self._done
        self._host_begin[index] = perf_counter_ns()
        self._record(self._gpu_begin[index])

    def end(self) -> bool:
        index = self._done
        self._record(self._gpu_end[index])
        self._host_end[index] = perf_counter_ns()
        if self._tells_kinds:
            self._kind[index] = self.context.kind()
        self._done = index + 1
        return self._done >= self._wanted

    def finish(self, complete: bool) -> Any:
        self.context.torch.cuda.synchronize()
        closed = perf_counter_ns()
        steps = self._done
        if steps == 0:
            return None
        if not complete:  # the script went on to other things before it ended
            closed = self._host_end[steps - 1]
        since = self._opening.elapsed_time
        return TimingResult(
            host_open_ns=self._host_open,
            host_begin_ns=tuple(self._host_begin[:steps]),
            host_end_ns=tuple(self._host_end[:steps]),
            host_close_ns=closed,
            gpu_begin_ms=tuple(map(since, self._gpu_begin[:steps])),
            gpu_end_ms=tuple(map(since, self._gpu_end[:steps])),
            kind=tuple(self._kind[:steps]) if self._tells_kinds else (),
            complete=complete,
        )


PASS = TimingPass
