"""Captures the forwards and backwards of a step, and leaves the optimizer eager."""

from __future__ import annotations

from launchscope.runner.child.passes.scope_base import ScopePass


class ForwardBackwardPass(ScopePass):
    """From the beginning of the step to the end of its last backward."""

    name = "scope_forward_backward"
    label = "replaying forward and backward"
    order = 70
    captured = "forward_backward"
    last_part = "backward"


PASS = ForwardBackwardPass
