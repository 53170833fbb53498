"""One rank of test_ranks.py: the passes over a script with DDP, on an emulated GPU.

Arguments: a folder for results, and what is different on rank 1, one after the other.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from launchscope.model import InspectResult, ReplayResult, Schedule, VerifyResult
from launchscope.reason_text import reason_text
from launchscope.runner.child import passes
from launchscope.runner.child.capture import capture, step_trace
from launchscope.runner.child.capture.state import DeviceState
from launchscope.runner.child.passes.pass_runner import PassRunner
from launchscope.runner.parent.run_folder import RunFolder
from tests.graphed.emulation import emulated
from tests.runner.steps import context_of

STEPS = 60


class OnTop(TorchDispatchMode):
    """Sees the ops of the script, whose capture contains none of `on_op`."""

    def __init__(self, gpu: Any, on_op: Any):
        super().__init__()  # type: ignore[no-untyped-call]
        self.gpu, self.on_op = gpu, on_op

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        gpu, graph = self.gpu, self.gpu.graph

        def run(*args: Any, **kwargs: Any) -> Any:
            gpu.graph = graph
            try:
                return func(*args, **kwargs)
            finally:
                gpu.graph = None

        gpu.graph = None
        try:
            return self.on_op(func, run, args, kwargs or {})
        finally:
            gpu.graph = graph


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
    patched.is_current_stream_capturing = lambda: True  # only asked in the captured step
    replaced: Any = passes
    on_host: Any = DeviceState
    replaced.DeviceState = lambda *args: on_host(*args[:4], "cpu")
    recording: Any = step_trace
    recording.dispatch_mode = functools.partial(OnTop, gpu)
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
    on_cpu: Any = context
    on_cpu.on_device = lambda tensor: tensor.device.type == "cpu"
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
                    ("replay", "verify"), lambda: ended.append("done"),
                    lambda: ended.append("left"), lambda _: None,
                )  # fmt: skip
                runner.start(context, step)
            batch = torch.rand(3, 4)
            if runner is not None:
                runner.begin_step()
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            if differs == "scaling":
                loss = loss * (1.0 + step / STEPS)
            loss.backward()
            if differs == "failing" and gpu.capturing():
                error = torch.OutOfMemoryError("no room")
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
    check = RunFolder(folder).read("pass-verify", VerifyResult)
    assert result is not None
    (folder / "result.json").write_text(json.dumps({
        "status": result.status,
        "reason": "" if result.reason is None else reason_text(result.reason),
        "code": None if result.reason is None else result.reason.code,
        "bursts": len(result.replay_bursts),
        "ended": ended[0],
        "check": None if check is None else dataclasses.asdict(check),
        "losses": losses,
    }))  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
