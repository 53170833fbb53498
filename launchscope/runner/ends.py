"""Follows the steps of a pass that wants nothing but their two ends, at the least cost.

Following every event of a step took 75 us a step on the host of an H200, of which two
thirds were hooks and bookkeeping that the timing pass has no use for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

from launchscope.runner.steps import FORWARD, Pattern


class Ends:
    """Calls `begin` and `end` where steps of `pattern` begin and end.

    The step is one that a forward begins and the only optimizer step, or that same forward,
    ends (`enough_for`); what else happens in it is not looked at. `elsewhere` says of a forward
    that it is no event of its own (`Hooks.not_a_step`).
    """

    def __init__(
        self,
        torch: Any,
        elsewhere: Callable[[], bool],
        pattern: Pattern,
        begin: Callable[[], None],
        end: Callable[[], None],
    ):
        self.key = pattern.begin_key
        self.backwards = 0
        self._elsewhere = elsewhere
        self._trains = pattern.begin_trains
        self._grad_enabled = torch.is_grad_enabled
        self._forward_ends = pattern.closing == "forward"
        # An opening event is one of the step's own until it has had its backwards.
        self._own_backwards = pattern.backwards
        self._inside = False
        self._begin = begin
        self._end = end

    @staticmethod
    def enough_for(pattern: Pattern) -> bool:
        """Whether two events are enough to follow such steps."""
        if pattern.begin_kind != FORWARD:
            return False
        if pattern.closing == "forward":
            return pattern.forwards == 1
        return pattern.closing == "optimizer" and pattern.optimizers == 1

    def hook(self, module: Any) -> list[Any]:
        """Handles of the hooks put on the module whose forward begins a step."""
        handles = [module.register_forward_pre_hook(Unshared(self._forward_opens), prepend=True)]
        if self._forward_ends:
            handles.append(module.register_forward_hook(Unshared(self._forward_closes)))
        return handles

    def _forward_opens(self, module: Any, args: Any) -> None:
        if self._elsewhere() or self._grad_enabled() is not self._trains:
            return
        if self._inside and self.backwards < self._own_backwards:
            return
        self._inside = True
        self.backwards = 0
        self._begin()

    def _forward_closes(self, module: Any, args: Any, output: Any) -> None:
        if self._inside and not self._elsewhere():
            self._inside = False
            self._end()

    def optimizer_stepped(self) -> None:
        if self._inside and not self._forward_ends and not self._elsewhere():
            self._inside = False
            self._end()


class Unshared(partial):  # type: ignore[type-arg]
    """A hook on one of the person's modules; a copy or a pickle of that module is without it."""

    def __reduce__(self) -> tuple[Any, ...]:
        # What stands in its place takes any arguments, does nothing, and needs no launchscope
        # where it is loaded.
        return getattr, (contextlib.nullcontext(), "__exit__")
