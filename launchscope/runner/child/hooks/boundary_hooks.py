"""Follows the steps of a pass that wants nothing but their two ends, at the least cost.

What follows a step runs once in two milliseconds and finds the caches of the processor full
of torch: on the host of an H200 it takes four to five times as long as in a loop of its own. So
every call, attribute and object between torch and the pass counts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from launchscope.runner.child.hooks.uncopyable_hook import UncopyableCall
from launchscope.runner.child.step_pattern import FORWARD, Pattern

# Where torch.nn.Module looks for a call that goes before its own. A module that has one does not
# become slower to call, as one with a hook does.
_CALL = "_compiled_call_impl"
_NO_GRAPH_TASK = -1


class StepBoundaryHooks:
    """Calls `begin` and `end` where steps of `pattern` begin and end.

    The step is one that a forward begins and the only optimizer step, or that same forward,
    ends (`enough_for`); what else happens in it is not looked at, except that backwards are
    counted where the step has several such forwards (`counts_backwards`). Heard is the thread
    of the number `thread`, until `hear` names another or none. Optimizer steps are told by
    whoever has the hook behind them: `inside` and `closes_with_optimizer`, it calls `end`.
    """

    def __init__(
        self,
        torch: Any,
        thread: int | None,
        pattern: Pattern,
        begin: Callable[[], None],
        end: Callable[[], None],
    ):
        self.key = pattern.begin_key
        self.hear = thread
        # An opening forward is one of the step's own until it has had its backwards.
        self.counts_backwards = pattern.closing == "optimizer" and pattern.openings > 1
        self.backwards = 0
        self._own_backwards = pattern.backwards if self.counts_backwards else 0
        self._trains, self._training = pattern.begin_trains, pattern.begin_training
        self._grad_enabled = torch.is_grad_enabled
        self._graph_task = torch._C._current_graph_task_id
        self.closes_with_optimizer = pattern.closing == "optimizer"
        self.inside = False
        self.missed = 0  # optimizer steps outside of any step
        self._begin = begin
        self.end = end

    @staticmethod
    def enough_for(pattern: Pattern) -> bool:
        """Whether two events are enough to follow such steps."""
        if pattern.begin_kind != FORWARD:
            return False
        if pattern.closing == "forward":
            return pattern.forwards == 1
        return pattern.closing == "optimizer" and pattern.optimizers == 1

    def hook(self, module: Any) -> BeforeCall | None:
        """Handle of what is put on the module whose forward begins a step.

        None if something else goes before the call of the module already.
        """
        return hook_call(module, partial(self._around, module))

    def _around(self, module: Any, call: Any) -> Any:
        ident, grad_enabled, trains = threading.get_ident, self._grad_enabled, self._trains
        running = False

        def called(*args: Any, **kwargs: Any) -> Any:
            nonlocal running
            if (
                running  # a module that calls itself
                or ident() != self.hear
                or grad_enabled() is not trains
                or module.training is not self._training
                or (self.inside and self._goes_on())
            ):
                return call(*args, **kwargs)
            self.inside = running = True
            self.backwards = 0
            self._begin()
            try:
                output = call(*args, **kwargs)
            finally:
                running = False
            if not self.closes_with_optimizer:
                self.inside = False
                self.end()
            return output

        return called

    def miss(self) -> None:
        """An optimizer stepped outside of a step: it was not seen to open, being in the mode
        that an evaluation has set for good."""
        self.missed += 1
        self._training = not self._training

    def _goes_on(self) -> bool:
        """Whether an opening forward is one more of the step that is under way.

        It is not if the step has had all of its own: its end was skipped.
        """
        again = self._graph_task() != _NO_GRAPH_TASK  # run by a backward, for a checkpoint
        return again or self.backwards < self._own_backwards


def hook_call(
    module: Any, around: Callable[[Any], Any], *, over_ours: bool = False
) -> BeforeCall | None:
    """Handle of what `around` makes of a module's call; None if somebody went before us.

    With `over_ours` that may be one of ours, which then has to stay for as long.
    """
    before = getattr(module, _CALL, None)
    if before is None:
        return BeforeCall(module, around(module._call_impl), None)
    if over_ours and type(before) is UncopyableCall:
        return BeforeCall(module, around(before), before)
    return None


def is_part_of(module: Any, others: Iterable[Any]) -> bool:
    """Whether another module calls this one inside its own forward."""
    return any(
        module is part for other in others if other is not module for part in other.modules()
    )


def swap_backward(owner: Any, present: Any, wanted: Any) -> None:
    """Put one backward in the place of another, unless the script has put its own there."""
    if owner.backward is present:
        owner.backward = wanted


class BeforeCall:
    """The handle of a call that goes before a module's own."""

    def __init__(self, module: Any, call: Any, before: UncopyableCall | None):
        self._module, self._before = module, before
        # torch leaves it out of copies; classes with a way of their own to copy (DDP) do not.
        self._call = UncopyableCall(call)
        module.__dict__[_CALL] = self._call

    def remove(self) -> None:
        if self._module.__dict__.get(_CALL) is not self._call:
            return
        if self._before is None:
            del self._module.__dict__[_CALL]
        else:
            self._module.__dict__[_CALL] = self._before
