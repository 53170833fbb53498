"""Ranks that torch's own launcher starts; a script with DDP on an emulated GPU, so that captures
run in real processes."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.processes import launchscope, started

pytestmark = pytest.mark.child

SCRIPT = """
import sys, torch, torch.distributed as dist
from launchscope.runner.child.capture import capture
from launchscope.runner.child.capture.state import DeviceState
from launchscope.runner.child import passes
from launchscope.runner.child.passes import replay_trace
from tests.graphed.emulation import emulated

class Event:
    def record(self): pass
    def elapsed_time(self, other): return 1.0

def fail(*args):
    raise RuntimeError("planted")

torch.set_num_threads(1)
gpu = emulated(setattr)
torch.cuda.is_initialized = lambda: True
torch.cuda.synchronize, torch.cuda.mem_get_info = lambda: None, lambda: (0, 0)
passes.DeviceState = lambda *args: DeviceState(*args[:4], "cpu")
capture.timing_events = lambda torch, count: [Event() for _ in range(count)]
dist.init_process_group("gloo")
if dist.get_rank() == 1:
    replay_trace.ReplayTracePass.start = fail
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
with gpu.on(None):
    for step in range(600):
        opt.zero_grad()
        net(torch.rand(3, 4)).square().mean().backward()
        opt.step()
"""


def test_a_rank_whose_process_ends_after_a_capture_leaves_a_report_of_all(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    options = ["--timing", "0", "--trace", "0", "--replay", "10", "-o", "report.json"]
    options += ["--python", sys.executable]
    done = launchscope(tmp_path, "profile", "--nproc-per-node", "2", *options, "train.py")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["replay"]["status"] == "measured", done.stderr
    assert [row["problem"] for row in report["ranks"]["rows"]] == [None, None]
    assert report["target"]["python"] == sys.executable
    assert report["target"]["ranks"] == 2
    assert "the script ended with that of rank 1, which ended first" in str(report["notes"])


@pytest.mark.campaign
def test_a_signal_to_the_launcher_ends_all_ranks_with_what_was_measured(tmp_path: Path) -> None:
    script = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(10**9):
    opt.zero_grad()
    net(torch.rand(3, 4)).square().mean().backward()
    opt.step()
    if i == 200:
        open(f"here-{dist.get_rank()}", "w").close()
"""
    (tmp_path / "train.py").write_text(script)
    options = ("--nproc-per-node", "2", "--inspect", "100000", "-f", "json")
    run = started(tmp_path, "-m", "launchscope", "profile", *options, "train.py")
    while len(list(tmp_path.glob("here-*"))) < 2:
        assert run.poll() is None
        time.sleep(0.05)
    run.send_signal(signal.SIGTERM)
    out, err = run.communicate(timeout=60)
    assert run.returncode == 128 + signal.SIGTERM
    assert "interrupted; this is what was measured until then" in err
    assert "SignalException" not in err
    assert all(row["device_ops_per_step"] for row in json.loads(out)["ranks"]["rows"])
