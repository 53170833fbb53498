"""What the script trains beside the step that is followed: whether that step is gone, and how long
forwards alone wait for a training step."""

from __future__ import annotations

from collections.abc import Callable

from launchscope.model import Reason
from launchscope.runner.child.events.step_pattern import Pattern
from launchscope.runner.child.facts.clock import clock
from launchscope.runner.protocol.events import StepGone
from launchscope.wording import plural

# A step is gone after so many optimizer steps in a row that do not belong to it.
_GONE_AFTER, _GONE_AFTER_OF_KINDS = 3, 30


class OtherSteps:
    """Counts the optimizer steps since the last one of a followed step; `before` the first step
    there were so many."""

    def __init__(self, pattern: Pattern, periodic: bool, mixed: bool, first_step: int, before: int):
        self.alone = pattern.closing == "forward"  # forwards without training are followed
        self._gone_after = _GONE_AFTER_OF_KINDS if mixed else _GONE_AFTER
        self._own = pattern.keys if periodic else None  # else each step may have another
        self._optimizers = pattern.optimizers
        self._before = before
        self._first_step = self._from = first_step
        self._count = 0

    def add(self, steps_done: int) -> bool:
        """Another optimizer step; whether the step that is followed is gone with it."""
        if self._count == 0:
            self._from = steps_done
        self._count += 1
        return self._count == self._gone_after

    def add_inside(self, optimizer: str, steps_done: int) -> bool:
        """The same for one within a step, which has the optimizers of the pattern."""
        if self._own is None or optimizer in self._own:
            self._count = 0
            return False
        return self.add(steps_done)

    def add_outside(self, steps_done: int) -> bool:
        """The same for one outside of the steps. Those of training interrupt the row; forwards
        alone go on: a policy that acts, then learns."""
        if not self.alone:
            self._count = self._count if steps_done == self._from else 0
        return self.add(steps_done)

    def gone(self, steps_done: int, marks: bool = False) -> StepGone:
        """What the script does instead of the step."""
        if marks:
            return StepGone(Reason("marks_later", {"step": steps_done}), steps_done)
        steps = steps_done if self.alone else self._from
        made = plural(steps, "inference step" if self.alone else "training step")
        before = self._before + (self._from - self._first_step) * self._optimizers
        return StepGone(Reason("trains_later", {"steps": made}), steps, max(before, 1))

    @property
    def remark(self) -> str:
        """Of a step that is gone and stays the one that is measured."""
        return (
            f"the script went on with other training after step {self._from}, during the "
            "measurement, so what was measured may be of both"
        )

    @property
    def seen(self) -> str:
        """Of forwards alone: what there was of training."""
        if not self._count:
            return "no optimizer stepped"
        return f"the script made only {plural(self._count, 'optimizer step')}"


class Patience:
    """Forwards alone wait for `limit_s` after the script `began`, as a training step may come."""

    def __init__(self, limit_s: float, began: float, others: OtherSteps, note: Callable[..., None]):
        self._limit_s = limit_s
        self._until = began + limit_s
        self._others = others
        self._note = note

    def waits(self, waited: bool) -> bool:
        """Whether they still wait; `waited`: they did before."""
        if not self._limit_s:
            return False
        limit = f"{self._limit_s:.0f} s"
        if clock.perf_counter() < self._until:
            if not waited:
                self._note(
                    "the forward was measured, but the script may still begin to train: "
                    f"launchscope waits for the training step until {limit} are over",
                    passing=True,
                )
            return True
        self._note(
            f"{self._others.seen} within {limit}, so the verdict is about the forward alone; "
            "--wait-for optimizer waits for as long as the script runs"
        )
        self._limit_s = 0.0
        return False
