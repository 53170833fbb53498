"""Captures the step inside the user's run, then times eager and replay in alternating bursts."""

from __future__ import annotations

import contextlib
import gc
import itertools
import sys
import time
from dataclasses import dataclass
from statistics import median
from typing import Any

from launchscope.model import ReplayResult
from launchscope.runner.capture import Capture, CapturedStep
from launchscope.runner.context import Context
from launchscope.runner.passes import PassBase
from launchscope.runner.state import DeviceState, OptimizerFlags, StateTooLargeError
from launchscope.runner.userlines import user_line

_BURSTS = 5
_SHORTEST_BURST = 2
LIVE_GRAPH = "replay_live"


@dataclass
class LiveReplay:
    """What later passes need of the captured step while the process lives."""

    step: CapturedStep
    state: DeviceState
    flags: OptimizerFlags
    kept: list[Any]  # memory the graph reads


class ReplayPass(PassBase):
    """Warm step under the optimizer flags, capture, then bursts: eager, replay, eager, ...

    After each replay burst the state is what one eager step would have left: the saved
    state is put back, and after the capture step, in which nothing ran, replayed once.
    """

    name = "replay"
    order = 40
    captures = True

    def skip_reason(self, context: Context) -> str | None:
        inspect = context.result("inspect")
        trace = context.result("trace") or {}
        if not context.side_stream or trace.get("legacy_kernels"):
            return "part of the step runs on the legacy default stream, which cannot be captured"
        if context.live.get("graph_replays") or context.live.get("graphs_by_compile"):
            return "the step already replays CUDA graphs"
        if inspect is None:
            return None
        signatures = set(inspect["signatures"])
        if inspect["blockers"]:
            return "blocked"
        if len(signatures) > 1:
            return (
                "the op stream changes from step to step "
                f"({len(signatures)} different in {inspect['steps']} steps)"
            )
        return None

    def start(self, context: Context) -> None:
        super().start(context)
        self._length = max(_SHORTEST_BURST, round(self.steps(context) / _BURSTS))
        self._flags = OptimizerFlags(context.torch, context.optimizers)
        self._state = DeviceState(
            context.torch,
            context.modules,
            context.optimizers,
            context.live.get("written_storages", ()),
        )
        self._phase = "warm"
        self._capture: Capture | None = None
        self._captured: CapturedStep | None = None
        self._eager: list[list[Any]] = []
        self._eager_bursts: list[tuple[float, ...]] = []
        self._replay_bursts: list[tuple[float, ...]] = []
        self._host_us: list[float] = []
        self._first_replay_ms: float | None = None
        self._memory_mib: float | None = None
        self._kind = 0
        self._kept: list[Any] = []
        self._where: str | None = None

    # -------------------------------------------------------------------------- steps

    def begin(self) -> None:
        if self._phase == "warm":
            self._flags.apply()
        elif self._phase == "capture" and self._wanted_kind():
            self._capture = Capture(self.context.torch)
            self._where = user_line(sys._getframe(1))
            self._keep_inputs()
            self._capture.begin()
        elif self._phase == "eager":
            self._opening = self._event()

    def _keep_inputs(self) -> None:
        """Hold on to the memory of every tensor alive now: replays read the captured addresses.

        The script drops its batch after the step; without this the allocator would hand
        the same memory to something else, and a replay would read that. Storages, not
        tensors, are held, so that no autograd graph is kept alive with them.
        """
        tensor = self.context.torch.Tensor
        for entry in gc.get_objects():
            if issubclass(type(entry), tensor):
                with contextlib.suppress(RuntimeError, NotImplementedError):
                    self._kept.append(entry.untyped_storage())

    def _wanted_kind(self) -> bool:
        return not self.context.boundary.kinds or self.context.kind() == self._main_kind()

    def _main_kind(self) -> int:
        shares = [kind.share_pct for kind in self.context.boundary.kinds]
        return shares.index(max(shares))

    def end(self) -> bool:
        if self._phase == "warm":
            self._phase = "capture"
        elif self._phase == "capture":
            if self._capture is None:
                return False
            self._keep_inputs()  # what the step itself fetched
            self._captured = self._capture.end()
            if self._captured.nodes == 0:
                raise RuntimeError("the captured graph is empty: the step launched nothing on it")
            self._after_capture()
            self._phase = "eager"
            self._eager = []
        elif self._wanted_kind():
            self._eager.append([self._opening, self._event()])
            if len(self._eager) > self._length:
                self._read_eager_burst()
                self._replay_burst(self._length + 1, measured=True)
                self._eager = []
        return len(self._replay_bursts) >= _BURSTS

    def _event(self) -> Any:
        event = self.context.torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _after_capture(self) -> None:
        """Nothing has run yet: do the step by one replay, before the script looks at it."""
        assert self._captured is not None
        torch = self.context.torch
        self._capture = None
        self._kind = self.context.kind()
        begun = time.perf_counter()
        self._captured.replay()
        torch.cuda.synchronize()
        self._first_replay_ms = (time.perf_counter() - begun) * 1e3
        used = self._captured.free_before - torch.cuda.mem_get_info()[0]
        self._memory_mib = max(0.0, used / 2**20)
        self._flags.revert()

    def _read_eager_burst(self) -> None:
        self.context.torch.cuda.synchronize()
        times = [opened.elapsed_time(closed) for opened, closed in self._eager]
        self._eager_bursts.append(tuple(times[1:]))

    def _replay_burst(self, count: int, measured: bool) -> None:
        assert self._captured is not None
        torch, replay, clock = self.context.torch, self._captured.replay, time.perf_counter_ns
        self._flags.apply()
        self._state.save()
        torch.cuda.synchronize()
        events, host = [self._event()], []
        for _ in range(count):
            begun = clock()
            replay()
            host.append((clock() - begun) / 1e3)
            events.append(self._event())
        torch.cuda.synchronize()
        self._state.restore()
        self._flags.revert()
        torch.cuda.synchronize()
        times = [a.elapsed_time(b) for a, b in itertools.pairwise(events)]
        if measured:
            self._replay_bursts.append(tuple(times[1:]))
            self._host_us += host[1:]

    # ------------------------------------------------------------------------ results

    def failed_inside_step(self, error: BaseException) -> Any:
        """An error while the capture is open is a result: this step cannot be captured.

        So is running out of memory later: the graph keeps its memory beside eager's.
        """
        starved = self._captured is not None and type(error).__name__ == "OutOfMemoryError"
        return self.failed(error) if starved or self._capture is not None else None

    def failed(self, error: BaseException) -> Any:
        """A failed replay, with the reason; what eager gave before is on disk already."""
        if self._capture is not None:
            self._capture.abandon()
        return ReplayResult(
            status="failed",
            reason=_reason(error),
            where=_line_of(error) or self._where,
            scope=self.context.boundary.scope,
            changes=self._flags.changes,
        )

    def finish(self, complete: bool) -> Any:
        if self._captured is None:
            self._flags.revert()
            return None
        self.context.live[LIVE_GRAPH] = LiveReplay(
            self._captured, self._state, self._flags, self._kept
        )
        inspect = self.context.result("inspect") or {}
        return ReplayResult(
            status="measured" if self._replay_bursts else "failed",
            reason=None if self._replay_bursts else "the script ended before a replay was timed",
            scope=self.context.boundary.scope,
            changes=self._flags.changes,
            eager_bursts=tuple(self._eager_bursts),
            replay_bursts=tuple(self._replay_bursts),
            host_replay_us=(median(self._host_us),) if self._host_us else (),
            capture_ms=self._captured.capture_ms,
            instantiate_ms=self._captured.instantiate_ms,
            first_replay_ms=self._first_replay_ms,
            graph_nodes=self._captured.nodes,
            graph_memory_mib=self._memory_mib,
            input_bytes=inspect.get("input_bytes"),
            input_tensors=inspect.get("input_tensors"),
            kind=self._kind,
        )


def _reason(error: BaseException) -> str:
    """The first lines of an error, less CUDA's advice on debugging."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    kept = [
        line
        for line in lines
        if not line.startswith(
            ("For debugging", "Compile with", "CUDA kernel errors", "Search for")
        )
    ]
    text = " ".join(kept[:2]) or type(error).__name__
    if isinstance(error, StateTooLargeError):
        return text
    return f"{type(error).__name__}: {text}"


def _line_of(error: BaseException) -> str | None:
    """The user's line at which the error was raised."""
    traceback, last = error.__traceback__, None
    while traceback is not None:
        last = traceback
        traceback = traceback.tb_next
    if last is None:
        return None
    return user_line(last.tb_frame)


PASS = ReplayPass
