"""Captures the forward and the loss where the backward cannot be in the graph."""

from __future__ import annotations

from launchscope.runner.child.passes.scope_base import ScopePass
from launchscope.runner.child.passes.scope_forward_backward import ForwardBackwardPass


class ForwardPass(ScopePass):
    """From the beginning of the step to the beginning of its first backward."""

    name = "scope_forward"
    label = "replaying the forward"
    order = 71
    captured = "forward"
    last_part = "forward"
    larger = ForwardBackwardPass


PASS = ForwardPass
