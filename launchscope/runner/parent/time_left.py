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
        self._began = 0.0  # of the first pass
        self._over = 0  # steps of the passes that are over
        self._done, self._wanted = 0, 0  # steps of the current pass

    @property
    def passes(self) -> int:
        """As many as there will be, as far as is known."""
        return self.number + len(self._left)

    def on_event(self, event: events.Event) -> None:
        match event:
            case events.DeviceKnown(on_gpu=False):
                self._left = {n: steps for n, steps in self._left.items() if PASSES[n].on_cpu}
            case events.PassStarted() if event.name != events.WARMUP:
                self._began = self._began or time.monotonic()
                self.number += 1
                self._reached(event.name, event.steps)
            case events.PassSkipped():
                self._reached(event.name, 0)
            case events.PassProgress() if self.number:
                self._done = event.done
            case events.PassEnded() | events.PassFailed():
                self._over, self._done, self._wanted = self._over + self._wanted, 0, 0
            case events.MeasuringEnded():
                self._left, self._wanted = {}, 0

    def seconds(self) -> float | None:
        """About how long the passes will take that are not over, if each of their steps takes as
        long as the steps so far did; None if that is not known or next to nothing."""
        done = self._over + self._done
        left = sum(self._left.values()) + self._wanted - self._done
        if not done:
            return None
        estimate = left * (time.monotonic() - self._began) / done
        return estimate if estimate >= _WORTH_SAYING_S else None

    def _reached(self, name: str, steps: int) -> None:
        """Passes run in the order of the plan, so that those before this one are not run."""
        self._done, self._wanted = 0, steps
        if name in self._left:
            names = list(self._left)
            for before in names[: names.index(name) + 1]:
                del self._left[before]
