"""What the script trains beside the step that is followed: whether that step is gone."""

from __future__ import annotations

from launchscope.model import Reason
from launchscope.runner.child.events.step_pattern import Pattern
from launchscope.runner.protocol.events import StepGone
from launchscope.wording import plural

# A step is gone after so many optimizer steps in a row that do not belong to it.
_GONE_AFTER, _GONE_AFTER_UNEVEN = 3, 30


class OtherSteps:
    """Counts the optimizer steps since the last one of a followed step; `before` the first step
    there were so many. Steps that are not `periodic` may be one of several kinds."""

    def __init__(self, pattern: Pattern, periodic: bool, first_step: int, before: int):
        self.alone = pattern.closing == "forward"  # forwards without training are followed
        self._gone_after = _GONE_AFTER if periodic else _GONE_AFTER_UNEVEN
        self._own = pattern.keys if periodic else None  # else each step may have another
        self._optimizers = pattern.optimizers
        self._before = before
        self._first_step = self._from = first_step
        self._count = 0

    def add(self, optimizer: str, inside: bool, steps_done: int) -> bool:
        """Another optimizer step, within a followed step or outside; whether that is gone with it.

        A step of training interrupts the row; forwards alone go on: a policy acts, then learns."""
        own = inside and (self._own is None or optimizer in self._own)
        if own or (not inside and not self.alone and steps_done != self._from):
            self._count = 0
        if own:
            return False
        if self._count == 0:
            self._from = steps_done
        self._count += 1
        return self._count == self._gone_after

    def gone(self, steps_done: int) -> StepGone:
        """What the script does instead of the step."""
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
