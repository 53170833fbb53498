"""Follows the steps of a pass that only needs their two ends, at the least cost.

What follows a step runs once in two milliseconds and finds the caches of the processor full
of torch: on the host of an H200 it takes four to five times as long as in a loop of its own. So
every call, attribute and object between torch and the pass counts.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from launchscope.runner.child.step_pattern import FORWARD, Pattern
from launchscope.runner.child.torch_types import Function, Module, Torch, Value

# Where torch.nn.Module looks for a call that replaces its own. Unlike a hook, it does not make
# the call of the module slower.
_CALL = "_compiled_call_impl"
_NO_GRAPH_TASK = -1


class UncopyableHook(partial):  # type: ignore[type-arg]
    """A hook on one of the script's modules; a copy or a pickle of that module is without it."""

    def __reduce__(self) -> tuple[Any, ...]:
        # What replaces it takes any arguments, does nothing, and needs no launchscope where it
        # is loaded.
        return getattr, (contextlib.nullcontext(), "__exit__")


class UncopyableCall(partial):  # type: ignore[type-arg]
    """A call that replaces a module's own; in a copy or a pickle of the module it is None."""

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "enter_result")


class StepBoundaryHooks:
    """Calls `begin` and `end` where steps of `pattern` begin and end.

    The step begins with a forward and ends with the only optimizer step or with that same
    forward (see `enough_for`). Nothing else in it is observed, except that backwards are
    counted where the step has several such forwards (`counts_backwards`). Only `thread` is
    observed; None: no thread. The hook after optimizer steps belongs to Hooks, which calls
    `end` for a step that is `inside` and `closes_with_optimizer`.
    """

    def __init__(
        self,
        torch: Torch,
        thread: int | None,
        pattern: Pattern,
        begin: Callable[[], None],
        end: Callable[[], None],
    ):
        self.key = pattern.first.key
        self.thread = thread
        # An opening forward is one of the step's own until it has had its backwards.
        self.counts_backwards = pattern.closing == "optimizer" and pattern.openings > 1
        self.backwards = 0
        self._own_backwards = pattern.backwards if self.counts_backwards else 0
        self._trains, self._training = pattern.first.trains, pattern.first.training
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
        if pattern.first.kind != FORWARD:
            return False
        if pattern.closing == "forward":
            return pattern.forwards == 1
        return pattern.closing == "optimizer" and pattern.optimizers == 1

    def hook(self, module: Module) -> ReplacedCall | None:
        """The handle of what is put on the module whose forward begins a step.

        None if something else replaces the call of the module already.
        """
        return replace_call(module, partial(self._around, module))

    def _around(self, module: Module, call: Function) -> Function:
        ident, grad_enabled, trains = threading.get_ident, self._grad_enabled, self._trains
        running = False

        def called(*args: Any, **kwargs: Any) -> Value:
            nonlocal running
            if (
                running  # a module that calls itself
                or ident() != self.thread
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
        """An optimizer stepped outside of a step: the step began unseen, because the module is
        in the mode that an evaluation has set for good."""
        self.missed += 1
        self._training = not self._training

    def _goes_on(self) -> bool:
        """Whether an opening forward is one more of the current step.

        It is not if the step has had all of its own: its end was skipped.
        """
        again = self._graph_task() != _NO_GRAPH_TASK  # run by a backward, for a checkpoint
        return again or self.backwards < self._own_backwards


class ReplacedCall:
    """The handle of a call that replaces a module's own."""

    def __init__(self, module: Module, call: Function, before: UncopyableCall | None):
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


def replace_call(
    module: Module, around: Callable[[Function], Function], *, over_ours: bool = False
) -> ReplacedCall | None:
    """The handle of what `around` makes of a module's call; None if it was replaced before us.

    With `over_ours` that may have been us, and our first handle then has to stay for as long.
    """
    before = getattr(module, _CALL, None)
    if before is None:
        return ReplacedCall(module, around(module._call_impl), None)
    if over_ours and type(before) is UncopyableCall:
        return ReplacedCall(module, around(before), before)
    return None


def is_part_of(module: Module, others: Iterable[Module]) -> bool:
    """Whether another module calls this one inside its own forward."""
    return any(
        module is part for other in others if other is not module for part in other.modules()
    )
