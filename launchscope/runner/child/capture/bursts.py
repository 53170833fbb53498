"""Times eager steps and replays in alternating bursts; the first step of a burst does not count.

GPU clocks drift under load, so one is never measured only after the other.
"""

from __future__ import annotations

import itertools
import time
from statistics import median

from launchscope.runner.child.capture.capture import CapturedStep
from launchscope.runner.child.capture.state import DeviceState, OptimizerFlags
from launchscope.runner.child.cuda_events import timing_events
from launchscope.runner.child.torch_types import Torch

BURSTS = 5
_SHORTEST = 2


class Bursts:
    """Call `open` and `close` around each eager step and `after_step` once it is over.

    `steps` is the number of steps of all bursts. A burst of replays leaves the state as it was.
    """

    def __init__(
        self,
        torch: Torch,
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
        # Two per eager step. A burst of replays needs one before the first and one after each.
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
        """Does nothing without an `open`, or the second time after it."""
        if self._opened:
            self._events[2 * self._timed + 1].record()
            self._timed += 1
            self._opened = False

    def after_step(self) -> None:
        """Once the eager burst is complete, read it and time a burst of replays."""
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
        events = self._events[: self._length + 1]
        host_us = []
        events[0].record()
        for event in events[1:]:
            start = clock()
            replay()
            host_us.append((clock() - start) / 1e3)
            event.record()
        torch.cuda.synchronize()
        self._state.restore()
        self._flags.revert()
        torch.cuda.synchronize()
        times = [a.elapsed_time(b) for a, b in itertools.pairwise(events)]
        self.replay.append(tuple(times[1:]))
        self._host_us += host_us[1:]
