"""Times eager and replay in turn: a burst of each, at least five times, the first step dropped.

GPU clocks drift under load, so the two are interleaved and never measured one after the other.
"""

from __future__ import annotations

import itertools
import time
from statistics import median
from typing import Any

from launchscope.runner.child.capture.capture import CapturedStep
from launchscope.runner.child.capture.state import DeviceState, OptimizerFlags
from launchscope.runner.child.cuda_events import timing_events

BURSTS = 5
_SHORTEST = 2


class Bursts:
    """`open` and `close` around each eager step, `turn` after it; `steps` are shared by bursts.

    After each burst of replays the state is what eager left before it.
    """

    def __init__(
        self,
        torch: Any,
        captured: CapturedStep,
        state: DeviceState,
        flags: OptimizerFlags,
        steps: int,
    ):
        self._torch = torch
        self._captured = captured
        self._state = state
        self._flags = flags
        self._length = max(_SHORTEST, round(steps / BURSTS)) + 1
        # Two for each eager step; of replays one before the first and one behind each.
        self._events = timing_events(torch, 2 * self._length)
        self._opened = False
        self._timed = 0
        self._host_us: list[float] = []
        self.eager: list[tuple[float, ...]] = []
        self.replay: list[tuple[float, ...]] = []

    @property
    def done(self) -> bool:
        return len(self.replay) >= BURSTS

    @property
    def host_us(self) -> tuple[float, ...]:
        """Median host time of one replay call; empty before the first burst."""
        return (median(self._host_us),) if self._host_us else ()

    def open(self) -> None:
        self._events[2 * self._timed].record()
        self._opened = True

    def close(self) -> None:
        """Ends what `open` began; nothing if it did not, or twice."""
        if self._opened:
            self._events[2 * self._timed + 1].record()
            self._timed += 1
            self._opened = False

    def turn(self) -> None:
        """After a step: if the eager burst is complete, read it and replay as many times."""
        self._opened = False
        if self._timed < self._length:
            return
        self._torch.cuda.synchronize()
        events = self._events
        times = [a.elapsed_time(b) for a, b in zip(events[::2], events[1::2])]
        self._timed = 0
        self.eager.append(tuple(times[1:]))
        self._replay_burst()

    def _replay_burst(self) -> None:
        torch, replay, clock = self._torch, self._captured.replay, time.perf_counter_ns
        self._flags.apply()
        self._state.save()
        torch.cuda.synchronize()
        before, *behind = self._events[: self._length + 1]
        host = []
        before.record()
        for event in behind:
            begun = clock()
            replay()
            host.append((clock() - begun) / 1e3)
            event.record()
        torch.cuda.synchronize()
        self._state.restore()
        self._flags.revert()
        torch.cuda.synchronize()
        times = [a.elapsed_time(b) for a, b in itertools.pairwise((before, *behind))]
        self.replay.append(tuple(times[1:]))
        self._host_us += host[1:]
