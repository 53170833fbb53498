"""Each silent error of a capture: a script that has it, and one that does the same rightly."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.gpu.conftest import Profiled
from tests.gpu.scripts import line_of, loop

pytestmark = pytest.mark.gpu

SIDE = "side = torch.cuda.Stream()"
BUFFER = 'model.register_buffer("ema", torch.zeros(64, 64, device="cuda"))'


@dataclass(frozen=True)
class Case:
    """`kind` is the cause that is reported for the wrong script, `at` a text in its line."""

    wrong: str
    right: str
    kind: str | None
    at: str | None = None


def scheduled(optimizer: str) -> str:
    return loop(
        optimizer=optimizer,
        setup="scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)",
        end="scheduler.step()",
    )


CASES = {
    "lr of AdamW": Case(
        scheduled("torch.optim.AdamW(model.parameters(), lr=0.001)"),
        scheduled(
            "torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.001, device='cuda'), "
            "capturable=True)"
        ),
        "learning_rate",
        "optimizer.step()",
    ),
    "temperature": Case(
        loop(init="self.t = 1.0", after="x = x / self.t", end="model.t *= 0.99"),
        loop(
            init="self.t = nn.Buffer(torch.ones(()))",
            after="x = x / self.t",
            end="model.t.mul_(0.99)",
        ),
        "scalar",
        "x = x / self.t",
    ),
    "dropout": Case(
        loop(
            after="mask = (torch.rand(64) > 0.5).pin_memory()\n"
            "x = x * mask.to('cuda', non_blocking=True)"
        ),
        loop(after="x = nn.functional.dropout(x, 0.5)"),
        "cross_step_state",
        "mask.to('cuda'",
    ),
    # The branch turns after the second capture, which is the one of the check.
    "branch": Case(
        loop(
            before="captures = 0",
            begin="late = captures >= 2",
            middle="captures += torch.cuda.is_current_stream_capturing()\n"
            "if late: loss = loss + model.layers[0].weight.abs().mean()",
        ),
        loop(
            before="captures = 0",
            setup="weight = torch.zeros((), device='cuda')",
            begin="late = captures >= 2",
            middle="captures += torch.cuda.is_current_stream_capturing()\n"
            "loss = loss + weight * model.layers[0].weight.abs().mean()",
        ),
        "branch",
    ),
    "new state in each step": Case(
        loop(
            setup="hidden = torch.zeros(64, device='cuda')",
            middle="hidden = 0.9 * hidden + 0.1 * x.mean(0)\nloss = loss + hidden.pow(2).mean()",
        ),
        loop(
            setup="hidden = torch.zeros(64, device='cuda')",
            middle="hidden.mul_(0.9).add_(x.mean(0), alpha=0.1)",
        ),
        "cross_step_state",
        "hidden = 0.9 * hidden",
    ),
    "new gradients in each step": Case(
        loop(zero="for p in model.parameters(): p.grad = torch.zeros_like(p)"),
        loop(zero="optimizer.zero_grad(set_to_none=False)"),
        "cross_step_state",
    ),
    "stream not forked": Case(
        loop(
            setup=f"{SIDE}\n{BUFFER}",
            last="with torch.cuda.stream(side): model.ema.lerp_(model.layers[0].weight.data, 0.1)",
        ),
        loop(
            setup=f"{SIDE}\n{BUFFER}",
            last="side.wait_stream(torch.cuda.current_stream())\n"
            "with torch.cuda.stream(side): model.ema.lerp_(model.layers[0].weight.data, 0.1)\n"
            "torch.cuda.current_stream().wait_stream(side)",
        ),
        "unjoined_stream",
        "model.ema.lerp_",
    ),
}


# What differs from step to step here reaches nothing that the step leaves behind.
HARMLESS = {
    "attention in single precision with dropout": loop(
        after="h = x.view(1, 4, 32, 16)\n"
        "x = nn.functional.scaled_dot_product_attention(h, h, h, dropout_p=0.1).reshape(32, 64)"
    ),
    "gradients that the step drops": loop(zero="model(x).mean().backward()\noptimizer.zero_grad()"),
    "what a script logs": loop(
        before="captures = 0",
        begin="late = captures >= 2",
        middle="captures += torch.cuda.is_current_stream_capturing()",
        last="if late and step % 4 == 0: loss.detach().sqrt()",
    ),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_reaches_nothing_is_no_error(profiled: Profiled, name: str) -> None:
    profile = profiled(HARMLESS[name])
    assert profile.replay.correct.status == "verified", profile.replay.correct


@pytest.mark.parametrize("name", CASES)
def test_the_error_is_found_and_named(profiled: Profiled, name: str) -> None:
    case = CASES[name]
    profile = profiled(case.wrong)
    replay, verdict = profile.replay, profile.verdict
    assert (replay.status, replay.reason) == ("measured", None)
    assert replay.correct.status == "different", replay.correct
    assert verdict is not None
    assert verdict.recommendation == "unsafe"
    assert case.kind in [cause.kind for cause in replay.correct.causes]
    if case.at is not None:
        lines = [cause.where for cause in replay.correct.causes if cause.kind == case.kind]
        assert line_of(case.wrong, case.at) in lines


@pytest.mark.parametrize("name", CASES)
def test_the_same_done_rightly_is_verified(profiled: Profiled, name: str) -> None:
    profile = profiled(CASES[name].right)
    replay, verdict = profile.replay, profile.verdict
    assert (replay.status, replay.reason) == ("measured", None)
    assert replay.correct.status == "verified", replay.correct
    assert replay.correct.steps == 4
    assert verdict is not None
    assert verdict.recommendation == "adopt"


def test_a_scheduler_that_steps_once_an_epoch_is_unsafe_whatever_the_check_saw(
    profiled: Profiled,
) -> None:
    source = loop(
        setup="scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)",
        end="if step % 390 == 389: scheduler.step()",
    )
    profile = profiled(source)
    assert profile.replay.correct.status == "verified"
    assert profile.verdict is not None
    assert (profile.verdict.recommendation, profile.verdict.because[0]) == ("unsafe", "LS035")


INFERENCE = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(20)]).cuda().eval()
scale = torch.ones((), device="cuda")
SCALE
with torch.no_grad():
    for step in range(400):
        out = model(torch.randn(8, 64, device="cuda"))
"""


def test_inference_is_compared_by_its_outputs(profiled: Profiled) -> None:
    profile = profiled(INFERENCE.replace("SCALE", ""))
    assert profile.replay.correct.status == "verified", profile.replay.correct
    frozen = (
        "factor = [1.0]\ndef hook(m, a, out):\n    factor[0] *= 0.9\n    return out * factor[0]"
    )
    source = INFERENCE.replace("SCALE", f"{frozen}\nmodel[3].register_forward_hook(hook)")
    wrong = profiled(source)
    assert wrong.replay.correct.status == "different"
    assert wrong.replay.correct.causes[0].where == line_of(source, "return out * factor")
