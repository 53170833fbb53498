"""Captures the first part of a training step that cannot be captured as a whole."""

from __future__ import annotations

from launchscope.model import ReplayResult, Schedule, StepPart
from launchscope.runner.child.context import Context
from launchscope.runner.child.passes import BLOCKED
from launchscope.runner.child.passes.capture_base import CapturePass, Scope
from launchscope.runner.child.passes.inspect import InspectPass
from launchscope.runner.child.passes.replay import ReplayPass, uncapturable

# The parts that a scope contains, in order.
_PARTS: dict[str, tuple[StepPart, ...]] = {
    "forward_backward": ("forward", "backward"),
    "forward": ("forward",),
}


class ScopePass(CapturePass):
    """Uses no stubs: what it measures is possible without fixing anything."""

    captured: Scope
    larger: type[ScopePass] | None = None  # it comes first, and if it worked this one is skipped
    part_of = ReplayPass

    @classmethod
    def steps(cls, schedule: Schedule) -> int:
        return schedule.replay

    def skip_reason(self, context: Context) -> str | None:
        whole = context.result(ReplayPass)
        if context.boundary.scope != "full_step" or not _in_order(context.boundary.period):
            return "the step has no such part"
        if whole is not None and whole.status == "measured":
            return "the whole step was captured"
        larger = None if self.larger is None else context.result(self.larger)
        if larger is not None and larger.status == "measured":
            return "a larger part of the step was captured"
        reason = uncapturable(context)
        if reason is not None:
            return reason
        inspect = context.result(InspectPass)
        if inspect is None:
            return None
        parts = _PARTS[self.captured]
        for blocker in inspect.blockers:
            if blocker.part in parts:
                at = f" at {blocker.where}" if blocker.where else ""
                return f"{BLOCKED}{blocker.op}{at} stands in this part of the step"
        if len(set(inspect.signatures)) > 1:
            return "the op stream changes from step to step"
        return None

    def skipped(self, context: Context, reason: str) -> ReplayResult | None:
        if not reason.startswith(BLOCKED):
            return None
        return ReplayResult("blocked", reason.removeprefix(BLOCKED), scope=self.captured)

    def start(self, context: Context) -> None:
        if context.replay is not None:
            context.replay.release()
            context.replay = None
        super().start(context)

    def finish(self, complete: bool) -> ReplayResult | None:
        result = super().finish(complete)
        if self._captured is not None:
            self.live().release()
        return result


def _in_order(period: tuple[str, ...]) -> bool:
    """Whether every optimizer step comes after the last backward, of which there is one."""
    if "backward" not in period or "optimizer" not in period:
        return False
    last = len(period) - 1 - period[::-1].index("backward")
    return period.index("optimizer") > last
