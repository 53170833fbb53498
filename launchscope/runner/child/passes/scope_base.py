"""Captures of a first part of a training step, where the whole of it cannot be captured."""

from __future__ import annotations

from typing import Any

from launchscope.model import StepPart
from launchscope.runner.child.capture.live_replay import LIVE_GRAPH, LiveReplay
from launchscope.runner.child.context import Context
from launchscope.runner.child.passes import BLOCKED
from launchscope.runner.child.passes.capture_base import CapturePass, Scope
from launchscope.runner.child.passes.replay import uncapturable

# The parts that a scope contains, in order.
_PARTS: dict[str, tuple[StepPart, ...]] = {
    "forward_backward": ("forward", "backward"),
    "forward": ("forward",),
}


class ScopePass(CapturePass):
    """Nothing in it is stubbed: what it measures can be had without mending anything."""

    captured: Scope = "forward_backward"

    def scope(self) -> Scope:
        return self.captured

    def steps(self, context: Context) -> int:
        return context.schedule.replay

    def skip_reason(self, context: Context) -> str | None:
        whole = context.result("replay")
        if context.boundary.scope != "full_step" or not _in_order(context.boundary.period):
            return "the step has no such part"
        if whole is not None and whole["status"] == "measured":
            return "the whole step was captured"
        larger = context.result("scope_forward_backward")
        if self.captured == "forward" and larger is not None and larger["status"] == "measured":
            return "a larger part of the step was captured"
        reason = uncapturable(context)
        if reason is not None:
            return reason
        inspect = context.result("inspect") or {}
        parts = _PARTS[self.captured]
        inside = [b for b in inspect.get("blockers", ()) if b["part"] in parts]
        if inside:
            line = inside[0]["where"]
            at = f" at {line['file']}:{line['line']}" if line else ""
            return f"{BLOCKED}{inside[0]['op']}{at} stands in this part of the step"
        if len(set(inspect.get("signatures", ()))) > 1:
            return "the op stream changes from step to step"
        return None

    def start(self, context: Context) -> None:
        live: LiveReplay | None = context.live.pop(LIVE_GRAPH, None)
        if live is not None:
            live.release()
        super().start(context)

    def finish(self, complete: bool) -> Any:
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
