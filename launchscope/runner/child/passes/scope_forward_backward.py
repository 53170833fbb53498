"""Captures the first part of a training step that cannot be captured as a whole."""

from __future__ import annotations

from launchscope.model import Reason, ReplayResult, StepPart
from launchscope.runner.child.passes import Context, Skip
from launchscope.runner.child.passes.capture_pass import ops_change, uncapturable
from launchscope.runner.child.passes.inspect import InspectPass
from launchscope.runner.child.passes.replay import BurstsPass, ReplayPass, Scope


class ForwardBackwardPass(BurstsPass):
    """From the beginning of the step to the end of its last backward; the optimizer stays eager.

    Uses no stubs: what it measures is possible without fixing anything.
    """

    name = "scope_forward_backward"
    scope: Scope = "forward_backward"
    parts: tuple[StepPart, ...] = ("forward", "backward")

    def skip(self, context: Context) -> Skip | None:
        whole = context.result(ReplayPass)
        if context.boundary.scope != "full_step" or not _in_order(context.boundary.period):
            return Skip("skipped", Reason("no_such_part"))
        if whole is not None and whole.status == "measured":
            return Skip("skipped", Reason("whole_step_captured"))
        inspect, skip = context.result(InspectPass), uncapturable(context)
        if skip is not None or inspect is None:
            return skip
        refused = [whole.refused] if whole is not None and whole.refused is not None else []
        for blocker in (*inspect.blockers, *refused):
            if blocker.part in self.parts:
                line = blocker.where
                details: dict[str, str | int | float] = {"op": blocker.op}
                if line is not None:
                    details |= {"file": line.file, "line": line.line}
                return Skip("blocked", Reason("blocker_in_part", details))
        return ops_change(inspect)

    def skipped(self, context: Context, skip: Skip) -> ReplayResult | None:
        if skip.status == "skipped":
            return None
        return ReplayResult("blocked", skip.reason, scope=self.scope)

    def start(self, context: Context) -> None:
        context.release_replay()
        super().start(context)

    def finish(self, complete: bool) -> ReplayResult | None:
        result = super().finish(complete)
        self.release()
        return result


def _in_order(period: tuple[str, ...]) -> bool:
    """Whether the step has backwards and optimizer steps, and all backwards come first."""
    if "optimizer" not in period:
        return False
    first = period.index("optimizer")
    return "backward" in period[:first] and "backward" not in period[first:]


PASS = ForwardBackwardPass
