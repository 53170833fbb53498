"""The script's own loop in windows of eager steps and of replays."""

from __future__ import annotations

import pytest

from launchscope.model import Profile
from tests.gpu.conftest import PointResult, ProfileScript, loop

pytestmark = pytest.mark.gpu


def source_of(ran: PointResult) -> str | None:
    return ran.measured.metrics["replayed_iteration_ms"].source


def speedup(profile: Profile) -> float:
    found = profile.value("iteration_speedup")
    assert found is not None
    return found


GAN = """
import torch
from torch import nn
def net(*sizes):
    return nn.Sequential(*(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])))
maker, critic = net(16, 64, 64, 64, 32).cuda(), net(32, 64, 64, 64, 1).cuda()
makes = torch.optim.SGD(maker.parameters(), lr=0.01)
tells = torch.optim.SGD(critic.parameters(), lr=0.01)
for step in range(600):
    real, noise = torch.randn(32, 32, device="cuda"), torch.randn(32, 16, device="cuda")
    tells.zero_grad()
    made = maker(noise)
    (critic(made.detach()).mean() - critic(real).mean()).backward()
    tells.step()
    makes.zero_grad()
    (-critic(made).mean()).backward()
    makes.step()
"""
ACCUMULATES = """
import torch
from torch import nn
model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(8))).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(600):
    for part in range(3):
        model(torch.randn(8, 64, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
SCALES = """
import torch
from torch import nn
model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(8))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scaler = torch.amp.GradScaler("cuda")
for step in range(600):
    with torch.autocast("cuda", torch.float16):
        loss = model(torch.randn(8, 64, device="cuda")).square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
INFERS = """
import torch
from torch import nn
model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(20))).cuda().eval()
with torch.inference_mode():
    for step in range(600):
        model(torch.randn(8, 64, device="cuda"))
"""
LOADS = """
import time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
class Slow(Dataset):
    def __len__(self):
        return 100_000
    def __getitem__(self, index):
        until = time.perf_counter() + 0.001
        while time.perf_counter() < until:
            pass
        return torch.randn(64)
if __name__ == "__main__":
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(8))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in DataLoader(Slow(), batch_size=20, num_workers=2):
        optimizer.zero_grad()
        model(x.cuda()).square().mean().backward()
        optimizer.step()
"""


@pytest.mark.parametrize("script", [GAN, ACCUMULATES, SCALES, INFERS])
def test_both_loops_of_a_launch_bound_script_are_measured(
    script: str, profile_script: ProfileScript
) -> None:
    ran = profile_script(script)
    assert source_of(ran) == "measured", ran.measured.notes
    assert speedup(ran.measured) > 2
    assert ran.verdict.recommendation.startswith("adopt")


def test_a_loop_whose_data_loader_is_the_limit_stays_eager(profile_script: ProfileScript) -> None:
    ran = profile_script(LOADS)
    assert source_of(ran) == "measured"
    assert ran.metric("iteration_ms") > 8  # 20 items of 1 ms by 2 workers, less what is noise
    assert 0.85 < speedup(ran.measured) < 1.15
    assert ran.verdict.recommendation == "stay_eager"


def test_a_checkpoint_within_the_windows_is_of_the_script_alone(
    profile_script: ProfileScript,
) -> None:
    """A replayed window with one does not count, so that the gain comes of a subtraction."""
    between = "if step % 3 == 0: torch.save(model.state_dict(), 'model.pt')"
    ran = profile_script(loop(between=between, steps=2000))
    assert ran.code == 0, ran.stderr
    assert source_of(ran) == "subtracted"


def test_steps_of_other_sizes_are_no_replays(profile_script: ProfileScript) -> None:
    between = (
        "rows = 64 - (step > 80 and step % 7 == 0)\n    x, y = torch.randn(rows, 128).cuda(), "
    )
    between += "torch.randint(0, 10, (rows,)).cuda()"
    ran = profile_script(loop(between=between, steps=3000))
    assert ran.code == 0, ran.stderr
    assert source_of(ran) == "subtracted"
