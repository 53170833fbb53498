"""Follows the steps of a pass that only needs their two ends, at the least cost.

What follows a step runs once in two milliseconds, when the processor's caches are full of torch:
on the host of an H200 it takes four to five times as long as in a loop of its own. So every call,
attribute and object between torch and the pass counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import get_ident
from typing import Any, Literal

from launchscope.runner.child.events.step_pattern import FORWARD, Pattern
from launchscope.runner.child.facts.patching import Undo, replace_call
from launchscope.runner.child.facts.torch_types import Function, Module, Torch, Value

NO_GRAPH_TASK = -1


@dataclass(eq=False)
class StepBoundaryHooks:
    """Calls `begin` and `end` where steps of `pattern`, for which that is `enough_for`, do.

    A pass may put its own calls in the place of these two. Then `over` is called where `end`
    returned True, and `failed` with an error, which is none of theirs if it returns True.
    """

    torch: Torch
    thread: int | None  # the only one that is observed; None: none is
    pattern: Pattern
    begin: Callable[[], None]
    end: Callable[[], object]
    over: Callable[[], None]
    failed: Callable[[Exception], object]
    backwards: int = 0  # of the step
    _place: Literal["", "forward", "rest"] = ""  # of the step, where the thread is

    def __post_init__(self) -> None:
        self.key = self.pattern.first.key
        self._closes_with_optimizer = self.pattern.closing == "optimizer"
        # An opening forward is one of the step's own until it has had its backwards.
        several = self._closes_with_optimizer and self.pattern.openings > 1
        self._own_backwards = self.pattern.backwards if several else 0
        self.counts_backwards = self._own_backwards > 0

    @staticmethod
    def enough_for(pattern: Pattern) -> bool:
        """Whether two events are enough to follow such steps."""
        if pattern.first.kind != FORWARD:
            return False
        if pattern.closing == "forward":
            return pattern.forwards == 1
        return pattern.closing == "optimizer" and pattern.optimizers == 1

    def hook(self, module: Module) -> Undo:
        """Hook the module whose forward begins a step; the result takes the hook back."""
        return replace_call(module, self._around)

    def _around(self, call: Function) -> Function:
        ident, grad_enabled = get_ident, self.torch._C.is_grad_enabled
        trains = self.pattern.first.trains

        def called(*args: Any, **kwargs: Any) -> Value:
            if ident() != self.thread or grad_enabled() is not trains:
                return call(*args, **kwargs)
            if self._place and self._goes_on():
                return call(*args, **kwargs)
            self._place = "forward"
            self.backwards = 0
            try:
                try:
                    self.begin()
                except Exception as error:
                    self.failed(error)
                output = call(*args, **kwargs)
            finally:
                self._place = "rest"
            if not self._closes_with_optimizer:
                self._ends()
            return output

        return called

    def _goes_on(self) -> bool:
        """Whether an opening forward is one more of the current step, or one of a module that calls
        itself, or one that a backward runs again for a checkpoint. A step that has had all of its
        own has skipped its end."""
        if self._place == "forward" or self.backwards < self._own_backwards:
            return True
        return bool(self.torch._C._current_graph_task_id() != NO_GRAPH_TASK)

    def optimizer_stepped(self) -> None:
        """Called after each optimizer step."""
        if get_ident() != self.thread:
            return
        if self._closes_with_optimizer and self._place:
            self._ends()

    def _ends(self) -> None:
        self._place = ""
        try:
            if self.end():
                self.over()
        except Exception as error:
            self.failed(error)
