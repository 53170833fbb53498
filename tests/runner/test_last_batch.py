"""The smaller last batch of a data loader is one rare shape, in real scripts without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.analysis import build_profile
from launchscope.model import LastBatch, Profile, Schedule
from launchscope.rules import advise
from tests.runner.children import PointResult, recorded

pytestmark = pytest.mark.child

DATA = """
import torch
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self):
        return 26

    def __getitem__(self, index):
        return torch.randn(6), torch.ones(())

loader = DataLoader(Data(), 8, LOADER)
net = torch.nn.Linear(6, 1)
"""
TRAINING = (
    DATA
    + """
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(8):
    for x, y in loader:
        opt.zero_grad()
        (net(x)[:, 0] - y).pow(2).mean().backward()
        opt.step()
"""
)
INFERENCE = (
    DATA
    + """
with torch.inference_mode():
    for epoch in range(8):
        for x, y in loader:
            net(x)
"""
)
ACROSS_TWO_EPOCHS = Schedule(inspect=7)


def advised(run: PointResult) -> Profile:
    return advise(build_profile(run.recording))


@pytest.mark.parametrize(
    "loader", ["shuffle=False", "shuffle=True", "shuffle=True, num_workers=1, prefetch_factor=1"]
)
def test_steps_over_the_end_of_an_epoch_have_one_shape_and_a_rare_one(
    loader: str, tmp_path: Path
) -> None:
    run = recorded(tmp_path, TRAINING.replace("LOADER", loader), schedule=ACROSS_TWO_EPOCHS)
    inspect = run.recording.inspect
    assert inspect is not None
    assert (inspect.steps, inspect.last_batch) == (7, LastBatch(26, 8))
    assert len(inspect.between) == len(inspect.forwards) == len(inspect.inputs) == 7
    assert {str(shape) for opening in inspect.openings for shape in opening} == {"(8, 6) float32"}
    profile = advised(run)
    assert profile.shapes.stable
    assert len(profile.shapes.signatures) == 1
    assert profile.value("shape_signatures") == 1
    (finding,) = (finding for finding in profile.findings if finding.code == "LS010")
    assert finding.title == (
        "The last batch of each epoch is smaller: 2 samples in place of 8 (26 samples, 4 batches)"
    )
    assert "drop_last=True" in finding.advice
    assert profile.verdict is not None
    assert profile.verdict.headline.endswith("stable but for the last batch of each epoch.")


def test_the_last_batch_is_no_kind_of_step_of_its_own(tmp_path: Path) -> None:
    run = recorded(tmp_path, INFERENCE.replace("LOADER", "shuffle=False"))
    assert run.recording.step is not None
    assert run.recording.step.kinds == ()
    assert advised(run).shapes.stable


@pytest.mark.parametrize("loader", ["drop_last=True", "drop_last=False"])
def test_other_shapes_still_change(loader: str, tmp_path: Path) -> None:
    source = INFERENCE.replace("LOADER", loader).replace("net(x)", "net(x[epoch % 2 :])")
    profile = advised(recorded(tmp_path, source, schedule=ACROSS_TWO_EPOCHS))
    assert (profile.shapes.last_batch is None) is (loader == "drop_last=True")
    assert profile.shapes.stable is False
