"""Captures the whole step and measures its replay, with stubs for blocking operations."""

from __future__ import annotations

from launchscope.model import ReplayResult
from launchscope.runner.child.capture.stubs import Stubs, without_stub
from launchscope.runner.child.context import Context
from launchscope.runner.child.passes import BLOCKED
from launchscope.runner.child.passes.capture_base import CapturePass
from launchscope.runner.child.passes.inspect import InspectPass
from launchscope.runner.child.passes.trace import TracePass
from launchscope.runner.child.step_pattern import BACKWARD
from launchscope.runner.child.torch_types import Tensor


class ReplayPass(CapturePass):
    """Known blockers are never captured: the replay of a step that has some is a what-if."""

    name = "replay"
    label = "replaying"
    order = 40
    fewest_steps = 10

    def skip_reason(self, context: Context) -> str | None:
        inspect = context.result(InspectPass)
        reason = uncapturable(context)
        if reason is not None or inspect is None:
            return reason
        changing = len(set(inspect.signatures))
        steps = inspect.steps
        if not inspect.blockers:
            if changing > 1:
                return f"the op stream changes from step to step ({changing} in {steps} steps)"
            return None
        if not context.own_process:
            return f"{BLOCKED}only a script of its own is captured with results put in for them"
        unknown = without_stub([blocker.op for blocker in inspect.blockers])
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
        inspect = self.context.result(InspectPass)
        return Stubs(self.context.torch, on_gpu) if inspect and inspect.blockers else None

    def skipped(self, context: Context, reason: str) -> ReplayResult:
        if not reason.startswith(BLOCKED):
            return ReplayResult("skipped", reason)
        inspect = context.result(InspectPass)
        where = inspect.blockers[0].where if inspect and inspect.blockers else None
        return ReplayResult("blocked", reason.removeprefix(BLOCKED), where)

    def finish(self, complete: bool) -> ReplayResult | None:
        result = super().finish(complete)
        if result is not None:
            self.context.replay = self.live()
        return result


def on_gpu(tensor: Tensor) -> bool:
    return bool(tensor.device.type == "cuda")


def uncapturable(context: Context) -> str | None:
    """Why no part of this step can be captured, whatever it contains; None if one may be."""
    trace = context.result(TracePass)
    if not context.side_stream or (trace is not None and trace.legacy_kernels):
        return "part of the step runs on the legacy default stream, which cannot be captured"
    if context.boundary.period[:1] == (BACKWARD,):
        return (
            "the step begins with its backward, and what that reads was made before: a capture "
            "would hold half of the work; mark the step with launchscope.step()"
        )
    if context.hooks.graph_replays or context.hooks.compile_makes_graphs:
        return "the step already replays CUDA graphs"
    return None


PASS = ReplayPass
