"""Ranks of a script capture and replay its step together; real processes, an emulated GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.model import Profile
from launchscope.parser import read_profile
from tests.processes import WITHOUT_GPU, launchscope

pytestmark = pytest.mark.child

# The argument says what is different on rank 1.
SCRIPT = """
import sys, torch, torch.distributed as dist
from launchscope.runner.child import passes
from launchscope.runner.child.capture import capture
from launchscope.runner.child.capture.state import DeviceState
from tests.graphed.emulation import emulated

class Event:
    def record(self): pass
    def elapsed_time(self, other): return 1.0

torch.set_num_threads(1)
gpu = emulated(setattr)
torch.cuda.is_initialized = lambda: True
torch.cuda.synchronize, torch.cuda.mem_get_info = lambda: None, lambda: (0, 0)
passes.DeviceState = lambda *args: DeviceState(*args[:4], "cpu")
passes.Context.on_device = lambda self, tensor: True
capture.timing_events = lambda torch, count: [Event() for _ in range(count)]
dist.init_process_group("gloo")
differs = sys.argv[1] if dist.get_rank() == 1 else ""
if differs == "a trace that fails":
    passes.replay_trace.ReplayTracePass.start = None
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
with gpu.on(None):
    for step in range(600):
        opt.zero_grad()
        x = torch.rand(3 + step % 2 if differs == "shapes" else 3, 4)
        loss = net(x).square().mean()
        if differs == "a factor":
            loss = loss * (1.0 + step / 600)
        loss.backward()
        if differs == "memory" and gpu.capturing():
            raise torch.OutOfMemoryError("no room")
        opt.step()
"""


def profiled(folder: Path, differs: str) -> Profile:
    (folder / "train.py").write_text(SCRIPT)
    words = ("--nproc-per-node", "2", "--timing", "0", "--trace", "0", "--replay", "10", "-q")
    done = launchscope(
        folder, "profile", *words, "-o", "p.json", "train.py", differs, environ=WITHOUT_GPU
    )
    assert done.returncode == 0, done.stderr
    return read_profile(folder / "p.json")


@pytest.mark.parametrize(
    ("differs", "status", "code"),
    [("shapes", "skipped", "rank_cannot_capture"), ("memory", "failed", "another_rank_failed")],
)
def test_a_rank_that_cannot_capture_makes_all_stay_eager(
    tmp_path: Path, differs: str, status: str, code: str
) -> None:
    replay = profiled(tmp_path, differs).replay
    assert replay.reason is not None
    assert (replay.status, replay.reason.code) == (status, code)


def test_a_replay_that_is_wrong_on_one_rank_is_found_on_all(tmp_path: Path) -> None:
    replay = profiled(tmp_path, "a factor").replay
    assert (replay.status, replay.correct.status) == ("measured", "different")
