"""Captures the whole step and measures its replay; what a capture cannot contain is stubbed."""

from __future__ import annotations

from typing import Any

from launchscope.runner.child.capture.live_replay import LIVE_GRAPH
from launchscope.runner.child.capture.stubs import Stubs, without_stub
from launchscope.runner.child.context import Context
from launchscope.runner.child.passes import BLOCKED
from launchscope.runner.child.passes.capture_base import CapturePass
from launchscope.runner.child.step_pattern import BACKWARD


class ReplayPass(CapturePass):
    """Known blockers are never captured as they are: the replay of such a step is a what-if."""

    name = "replay"
    order = 40

    def skip_reason(self, context: Context) -> str | None:
        inspect = context.result("inspect")
        reason = uncapturable(context)
        if reason is not None or inspect is None:
            return reason
        changing = len(set(inspect["signatures"]))
        steps = inspect["steps"]
        if not inspect["blockers"]:
            if changing > 1:
                return f"the op stream changes from step to step ({changing} in {steps} steps)"
            return None
        if not context.own_process:
            return f"{BLOCKED}only a script of its own is captured with results put in for them"
        unknown = without_stub([blocker["op"] for blocker in inspect["blockers"]])
        if unknown:
            return f"{BLOCKED}{unknown[0]} cannot be replaced by a recorded result"
        if changing > 1:
            return (
                f"{BLOCKED}the op stream changes from step to step ({changing} in {steps} steps), "
                "so values recorded in one step cannot stand in for those of another"
            )
        if context.boundary.compiled:
            return f"{BLOCKED}in compiled code results cannot be recorded op by op"
        return None

    def make_stubs(self) -> Stubs | None:
        inspect = self.context.result("inspect") or {}
        return Stubs(self.context.torch, on_gpu) if inspect.get("blockers") else None

    def finish(self, complete: bool) -> Any:
        result = super().finish(complete)
        if result is not None:
            self.context.live[LIVE_GRAPH] = self.live()
        return result


def on_gpu(tensor: Any) -> bool:
    return bool(tensor.device.type == "cuda")


def uncapturable(context: Context) -> str | None:
    """Why no part of this step can be captured, whatever stands in it; None if nothing does."""
    trace = context.result("trace") or {}
    if not context.side_stream or trace.get("legacy_kernels"):
        return "part of the step runs on the legacy default stream, which cannot be captured"
    if context.boundary.period[:1] == (BACKWARD,):
        return (
            "the step begins with its backward, and what that reads was made before: a capture "
            "would hold half of the work; mark the step with launchscope.step()"
        )
    if context.live.get("graph_replays") or context.live.get("graphs_by_compile"):
        return "the step already replays CUDA graphs"
    return None


PASS = ReplayPass
