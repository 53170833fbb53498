"""Captures the whole step and measures its replay, with stubs for blocking operations."""

from __future__ import annotations

from launchscope.model import Reason, ReplayResult
from launchscope.runner.child.capture.stubs import Stubs, without_stub
from launchscope.runner.child.context import Context
from launchscope.runner.child.passes import Skip
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

    def skip(self, context: Context) -> Skip | None:
        inspect = context.result(InspectPass)
        skip = uncapturable(context)
        if skip is not None or inspect is None:
            return skip
        variants = len(set(inspect.signatures))
        changing = {"variants": variants, "steps": inspect.steps}
        if not inspect.blockers:
            return Skip("skipped", Reason("ops_change", changing)) if variants > 1 else None
        if not context.own_process:
            return Skip("blocked", Reason("callable_with_blockers"))
        unknown = without_stub([blocker.op for blocker in inspect.blockers])
        if unknown:
            return Skip("blocked", Reason("no_stub", {"op": unknown[0]}))
        if variants > 1:
            return Skip("blocked", Reason("ops_change_beside_blockers", changing))
        if context.boundary.compiled:
            return Skip("blocked", Reason("compiled_with_blockers"))
        return None

    def make_stubs(self) -> Stubs | None:
        inspect = self.context.result(InspectPass)
        return Stubs(self.context.torch, on_gpu) if inspect and inspect.blockers else None

    def skipped(self, context: Context, skip: Skip) -> ReplayResult:
        inspect = context.result(InspectPass) if skip.status == "blocked" else None
        where = inspect.blockers[0].where if inspect and inspect.blockers else None
        return ReplayResult(skip.status, skip.reason, where)

    def finish(self, complete: bool) -> ReplayResult | None:
        result = super().finish(complete)
        if result is not None:
            self.context.replay = self.live()
        return result


def on_gpu(tensor: Tensor) -> bool:
    return bool(tensor.device.type == "cuda")


def uncapturable(context: Context) -> Skip | None:
    """Why no part of this step can be captured, whatever it contains; None if one may be."""
    trace = context.result(TracePass)
    if not context.side_stream or (trace is not None and trace.legacy_kernels):
        return Skip("skipped", Reason("legacy_stream"))
    if context.boundary.period[:1] == (BACKWARD,):
        return Skip("skipped", Reason("begins_with_backward"))
    if context.hooks.graph_replays or context.hooks.compile_makes_graphs:
        return Skip("skipped", Reason("already_graphed"))
    return None


PASS = ReplayPass
