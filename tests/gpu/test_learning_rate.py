"""The remedy that is given for a frozen learning rate works for every optimizer it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.model import CAPTURE_FLAGS, CaptureFlags
from launchscope.rules.findings.changing_numbers import remedy
from tests.advised_flags import operations
from tests.processes import python

pytestmark = pytest.mark.gpu

# In a process of its own: a capture that fails leaves CUDA unusable.
CAPTURE = """
import torch
p = torch.nn.Parameter(torch.ones(8, device="cuda"))
lr = torch.tensor(0.1, device="cuda")
optimizer = torch.optim.NAME([p], lr=lr, FLAG=True)
torch.cuda.set_stream(torch.cuda.Stream())
p.grad = torch.ones_like(p)
for _ in range(3):
    optimizer.step()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
    optimizer.step()
moved = []
for rate in (0.1, 0.0):
    lr.fill_(rate)
    before = p.detach().clone()
    graph.replay()
    moved.append((p - before).abs().sum().item())
assert moved[0] > 0 and moved[1] == 0, moved
"""


@pytest.mark.parametrize("flags", [known for known in CAPTURE_FLAGS if known.follows_rate])
def test_the_remedy_follows_the_rate_during_replays(flags: CaptureFlags, tmp_path: Path) -> None:
    assert f"{flags.flag}=True" in remedy(flags.optimizer)
    code = CAPTURE.replace("NAME", flags.optimizer).replace("FLAG", flags.flag)
    done = python(tmp_path, "-c", code)
    assert done.returncode == 0, done.stderr


def test_advised_flags_run_the_same_operations_in_a_rehearsal(tmp_path: Path) -> None:
    assert operations(tmp_path) == operations(tmp_path, CUDA_VISIBLE_DEVICES="")
