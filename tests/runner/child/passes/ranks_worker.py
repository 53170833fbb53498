"""One rank of test_ranks.py: the passes over a script with DDP, on an emulated GPU.

Arguments: a folder for results, and what is different on rank 1, one after the other.
"""

from __future__ import annotations

import functools
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from launchscope.model import InspectResult, ReplayResult, Schedule
from launchscope.reason_text import reason_text
from launchscope.runner.child.capture import capture
from launchscope.runner.child.capture.state import DeviceState
from launchscope.runner.child.pass_runner import PassRunner
from launchscope.runner.child.passes import replay
from launchscope.runner.parent.run_folder import RunFolder
from tests.graph_step.emulation import emulated
from tests.runner.steps import context_of

STEPS = 60


class Event:
    def record(self) -> None: ...

    def elapsed_time(self, other: Event) -> float:
        return 1.0


def main(folder: Path, *hows: str) -> None:
    torch.set_num_threads(1)
    gpu: Any = emulated(setattr)
    dist.init_process_group("gloo")
    patched: Any = torch.cuda
    patched.synchronize, patched.mem_get_info = lambda: None, lambda: (0, 0)
    replaced: Any = replay
    replaced.DeviceState = functools.partial(DeviceState, device="cpu")
    made: Any = capture
    made.timing_events = lambda _, count: [Event() for _ in range(count)]
    for how in hows:
        own = folder / how / str(dist.get_rank())
        own.mkdir(parents=True)
        train(gpu, own, how)


def train(gpu: Any, folder: Path, how: str) -> None:
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    context = context_of(folder, model, optimizer)
    context.boundary = replace(context.boundary, period=("forward", "backward", "optimizer"))
    context.schedule, context.replay = Schedule(verify=4, replay=10), None
    context.on_gpu = True
    differs = how if rank == 1 else ""
    changing = differs == "changing"
    signatures = ("a", "b", "a") if changing else ("a",) * 3
    context.results["inspect"] = InspectResult(3, signatures, ((),) * 3, (5,) * 3, ())
    ended: list[str] = []
    losses = []
    runner: PassRunner | None = None
    torch.manual_seed(rank)
    with gpu.on(None):
        for step in range(STEPS):
            if step == (14 if differs == "late" else 12):
                runner = PassRunner(
                    context, ("replay", "verify"), True, 0.01, step, lambda: ended.append("done"),
                    lambda: ended.append("left"), lambda _: None, lambda: False,
                )  # fmt: skip
                runner.next_pass()
            if runner is not None:
                runner.begin_step()
            optimizer.zero_grad()
            loss = model(torch.rand(3, 4)).square().mean()
            loss.backward()
            if differs == "failing" and gpu.capturing():
                error = RuntimeError("no luck")
                assert runner is not None
                assert runner.takes_blame(error)
                ended.append("left")
                break
            optimizer.step()
            if runner is not None:
                runner.end_step()
                if "left" in ended:
                    break
            losses.append(float(loss.detach()))
    result = RunFolder(folder).read("pass-replay", ReplayResult)
    assert result is not None
    (folder / "result.json").write_text(json.dumps({
        "status": result.status,
        "reason": "" if result.reason is None else reason_text(result.reason),
        "bursts": len(result.replay_bursts),
        "ended": ended[0],
        "losses": losses,
    }))  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
