"""Where the whole step cannot be captured: forward and backward, then the forward alone."""

from __future__ import annotations

import pytest

from tests.gpu.conftest import Profiled
from tests.gpu.scripts import loop

pytestmark = pytest.mark.gpu

REFUSES = """
class Refuses(torch.optim.SGD):
    def step(self, closure=None):
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("this optimizer cannot be captured")
        return super().step(closure)
"""
BACKWARD = """
class Identity(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, grad):
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("this backward cannot be captured")
        return grad
"""


def test_a_grad_scaler_leaves_forward_and_backward(profiled: Profiled) -> None:
    profile = profiled(
        loop(
            setup="scaler = torch.amp.GradScaler('cuda')",
            backward="scaler.scale(loss).backward()",
            update="scaler.step(optimizer)",
            end="scaler.update()",
        )
    )
    assert profile.replay.status == "what_if", profile.replay.reason
    (scope,) = profile.replay.scopes
    assert (scope.scope, scope.status) == ("forward_backward", "measured")
    assert scope.eager_ms is not None
    assert scope.replay_ms is not None
    assert scope.replay_ms < scope.eager_ms
    assert any("alone takes" in finding.title for finding in profile.findings)


def test_an_optimizer_that_fails_the_capture_is_left_out_of_it(profiled: Profiled) -> None:
    profile = profiled(
        loop(before=REFUSES, optimizer="Refuses(model.parameters(), lr=0.01, momentum=0.9)")
    )
    assert (profile.replay.status, profile.replay.scope) == ("measured", "forward_backward")
    assert any("this optimizer cannot be captured" in note for note in profile.notes)
    assert len([note for note in profile.notes if "run again" in note]) == 1
    assert profile.verdict is not None
    assert profile.verdict.recommendation == "adopt"
    instructions = profile.verdict.instructions
    assert any("the forward and backward passes of the step" in line for line in instructions)


def test_a_line_in_the_forward_blocks_every_scope(profiled: Profiled) -> None:
    profile = profiled(loop(after="self.last = x.sum().item()"))
    assert profile.replay.status == "what_if"
    assert [scope.status for scope in profile.replay.scopes] == ["blocked", "blocked"]
