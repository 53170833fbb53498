"""Tests and loops of the script's step go the other way for some steps, one after the other."""

from __future__ import annotations

import builtins
from typing import Any

from launchscope.adopt.observation import EVENT_EVERY, SWITCHED, Stretches, switch


class Switching:
    """Sets the variables that the tests of a marked script ask. `now`: the number of the test that
    goes the other way, `done`: those that did, and were reached by then."""

    def __init__(self, stretches: Stretches):
        self._stretches = stretches
        self._waiting = [*range(stretches.switches)]
        self._began = False
        self._reached: dict[int, bool] = {}  # filled by the tests themselves
        self.now: int | None = None
        self.done: tuple[int, ...] = ()

    def install(self) -> None:
        setattr(builtins, SWITCHED, self._reached)
        for number in self._waiting:  # for a thread whose iterations are not followed
            setattr(builtins, switch(number), False)

    @property
    def is_over(self) -> bool:
        return not self._waiting

    def begin_iteration(self, space: dict[str, Any], done: int) -> None:
        """Have a test go the other way from this iteration on, which begins after so many units,
        until it is time for the next test. These are enough iterations for `graphed` to make a
        graph of that. `space`: the variables of the script's module, which are settings of a step,
        as those of Python itself are not."""
        if not self._began:
            self._began = True
            space.update((switch(number), False) for number in self._waiting)
        number = self._waiting[0]
        if done >= self._due(number + 1):
            del self._waiting[0]
            space[switch(number)] = False
            self.now = None
            self.done += (number,) if number in self._reached else ()
        if self._waiting and self._due(self._waiting[0]) <= done < self._stretches.timed_from:
            self.now = self._waiting[0]
            space[switch(self.now)] = True

    def _due(self, number: int) -> int:
        return self._stretches.switched_from + number * EVENT_EVERY
