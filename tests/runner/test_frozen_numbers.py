"""What a graph would freeze or refuse is found by comparing steps, without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.analysis import build_profile
from launchscope.model import Profile
from launchscope.rules import advise
from tests.runner.children import recorded

pytestmark = pytest.mark.child

LOOP = """
import math, torch
net = torch.nn.Linear(8, 8).cuda()
opt = torch.optim.{optimizer}
{before}
for step in range(60):
    x = torch.randn(4, 8, device="cuda")
    opt.zero_grad()
    {loss}
    loss.backward()
    opt.step()
    {behind}
"""


def rehearsed(folder: Path, **parts: str) -> Profile:
    usual = {"optimizer": "SGD(net.parameters(), lr=0.1)", "before": "", "behind": ""}
    return advise(build_profile(recorded(folder, LOOP.format(**(usual | parts))).recording))


@pytest.mark.parametrize(
    ("parts", "code", "said"),
    [
        (
            {"loss": "loss = net(x).mean() * (1 - math.exp(-step / 20))"},
            "LS035",
            "a value passed to mul() changes (from ",
        ),
        (
            {"loss": "loss = net(x).mean()", "behind": "opt.param_groups[0]['lr'] *= 0.99"},
            "LS035",
            "the learning rate of SGD changes",
        ),
        (
            {
                "before": "kept = torch.zeros(8, device='cuda')",
                "loss": "loss = (net(x) - kept).square().mean()\n    kept = kept * 0.9 + x.mean(0)",
            },
            "LS033",
            "a replay goes on reading the first one",
        ),
    ],
)
def test_what_changes_from_step_to_step_is_named(
    parts: dict[str, str], code: str, said: str, tmp_path: Path
) -> None:
    profile = rehearsed(tmp_path, **parts)
    found = next(finding for finding in profile.findings if finding.code == code)
    assert said.lower() in found.title.lower()
    assert found.where is not None
    assert profile.verdict is not None
    assert "allows a capture" not in profile.verdict.headline


def test_an_optimizer_that_counts_on_the_host_changes_nothing_but_needs_a_flag(
    tmp_path: Path,
) -> None:
    optimizer = "AdamW(net.parameters(), lr=1e-3)"
    profile = rehearsed(tmp_path, optimizer=optimizer, loss="loss = net(x).mean()")
    assert profile.replay.correct.causes == ()
    assert profile.verdict is not None
    assert "AdamW capturable=True" in " ".join(profile.verdict.instructions)


def test_a_generator_of_the_script_has_to_be_registered_with_a_graph(tmp_path: Path) -> None:
    profile = rehearsed(
        tmp_path,
        before="noise = torch.Generator(device='cuda')",
        loss="loss = (net(x) + torch.empty_like(x).normal_(generator=noise)).mean()",
    )
    (blocker,) = profile.blockers
    assert (blocker.category, blocker.op) == ("rng", "aten.normal_")


def test_sizes_behind_a_mask_are_no_control_flow(tmp_path: Path) -> None:
    profile = rehearsed(tmp_path, loss="loss = net(x)[x.mean(1) > 0.1].sum()")
    assert profile.shapes.stable
    assert {blocker.category for blocker in profile.blockers} == {"dynamic_shape"}
    assert not [finding for finding in profile.findings if finding.code == "LS011"]
