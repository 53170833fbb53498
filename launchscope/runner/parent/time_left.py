"""How far a run is: passes that are over, passes that are left, and the time that these need."""

from __future__ import annotations

import time
from collections.abc import Iterable

from launchscope.model import Schedule
from launchscope.runner.protocol import events
from launchscope.runner.protocol.passes import PASSES, PassInfo

_WORTH_SAYING_S = 1.0


class TimeLeft:
    """Follows the events of one process, which was asked to run the passes of `planned`."""

    def __init__(self, planned: Iterable[PassInfo] = (), schedule: Schedule | None = None):
        schedule = schedule or Schedule()
        # A part of a step is measured only where a pass for all of it cannot be.
        self._left = {k.name: k.steps(schedule) for k in planned if k.part_of is None}
        self.number = 0  # of the current pass, from 1; the warm-up is none
        self._steps, self._seconds = 0, 0.0  # of the passes that are over
        self._current: tuple[float, int, int] | None = None  # since when, steps done, steps

    @property
    def passes(self) -> int:
        """As many as there will be, as far as is known."""
        return self.number + len(self._left)

    def on_event(self, event: events.Event) -> None:
        match event:
            case events.DeviceKnown(on_gpu=False):
                self._keep(name for name in self._left if PASSES[name].on_cpu)
            case events.PassStarted() if event.name != events.WARMUP:
                self._reached(event.name)
                self.number += 1
                self._current = time.monotonic(), 0, event.steps
            case events.PassSkipped():
                self._reached(event.name)
            case events.PassProgress() if self._current is not None:
                self._current = self._current[0], event.done, event.steps
            case events.PassEnded() if self._current is not None:
                self._seconds += event.seconds
                self._steps += self._current[2]
                self._current = None
            case events.PassFailed():
                self._current = None
            case events.MeasuringEnded():
                self._left, self._current = {}, None

    def seconds(self) -> float | None:
        """About how long the passes will take that are not over, if each of their steps takes as
        long as the steps so far did on average; None if that is not known or next to nothing."""
        since, done, wanted = self._current or (0.0, 0, 0)
        running = time.monotonic() - since if self._current is not None else 0.0
        steps = self._steps + done
        if not steps:
            return None
        per_step = (self._seconds + (running if done else 0.0)) / steps
        here = wanted * per_step - running if not done else (wanted - done) * per_step
        if self._current is not None and here <= 0:
            return None  # it takes longer than those before it
        estimate = max(0.0, here) + sum(self._left.values()) * per_step
        return estimate if estimate >= _WORTH_SAYING_S else None

    def _reached(self, name: str) -> None:
        """Passes run in the order of the plan, so that those before this one are not run."""
        names = list(self._left)
        if name in names:
            self._keep(names[names.index(name) + 1 :])

    def _keep(self, names: Iterable[str]) -> None:
        self._left = {name: self._left[name] for name in list(names)}
