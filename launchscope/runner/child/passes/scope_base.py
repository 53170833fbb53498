"""Captures the first part of a training step that cannot be captured as a whole."""

from __future__ import annotations

from launchscope.model import Reason, ReplayResult, Schedule, StepPart
from launchscope.runner.child.context import Context
from launchscope.runner.child.passes import Skip
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

    def skip(self, context: Context) -> Skip | None:
        whole = context.result(ReplayPass)
        if context.boundary.scope != "full_step" or not _in_order(context.boundary.period):
            return Skip("skipped", Reason("no_such_part"))
        if whole is not None and whole.status == "measured":
            return Skip("skipped", Reason("whole_step_captured"))
        larger = None if self.larger is None else context.result(self.larger)
        if larger is not None and larger.status == "measured":
            return Skip("skipped", Reason("larger_part_captured"))
        inspect, skip = context.result(InspectPass), uncapturable(context)
        if skip is not None or inspect is None:
            return skip
        parts = _PARTS[self.captured]
        for blocker in inspect.blockers:
            if blocker.part in parts:
                line = blocker.where
                details: dict[str, str | int | float] = {"op": blocker.op}
                if line is not None:
                    details |= {"file": line.file, "line": line.line}
                return Skip("blocked", Reason("blocker_in_part", details))
        variants = len(set(inspect.signatures))
        if variants > 1:
            changing = {"variants": variants, "steps": inspect.steps}
            return Skip("skipped", Reason("ops_change", changing))
        return None

    def skipped(self, context: Context, skip: Skip) -> ReplayResult | None:
        if skip.status == "skipped":
            return None
        return ReplayResult("blocked", skip.reason, scope=self.captured)

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
