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
from tests.runner.child.passes.test_ranks import SCRIPT

pytestmark = pytest.mark.child


def test_a_rank_whose_process_ends_after_a_capture_leaves_a_report_of_all(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    options = ["--timing", "0", "--trace", "0", "--replay", "10", "-o", "report.json"]
    options += ["--python", sys.executable]
    done = launchscope(
        tmp_path, "profile", "--nproc-per-node", "2", *options, "train.py", "a trace that fails"
    )
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
