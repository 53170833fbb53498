"""Captures the forward and the loss where the backward cannot be in the graph."""

from __future__ import annotations

from launchscope.model import Reason
from launchscope.runner.child.passes import Context, Skip
from launchscope.runner.child.passes.scope_forward_backward import ForwardBackwardPass


class ForwardPass(ForwardBackwardPass):
    """From the beginning of the step to the beginning of its first backward."""

    name = "scope_forward"
    scope = "forward"
    parts = ("forward",)

    def skip(self, context: Context) -> Skip | None:
        larger = context.result(ForwardBackwardPass)
        if larger is not None and larger.status == "measured":
            return Skip("skipped", Reason("larger_part_captured"))
        return super().skip(context)


PASS = ForwardPass
