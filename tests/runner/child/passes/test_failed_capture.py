"""What a capture that fails leaves to do, and to whom; tried on an emulated CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from launchscope.model import InspectResult, ReplayResult, Schedule, StepEvent
from launchscope.runner.child.pass_runner import PassRunner
from launchscope.runner.child.passes import Context
from launchscope.runner.child.passes import replay as replay_pass
from launchscope.runner.parent.run_folder import RunFolder
from launchscope.runner.protocol.events import Note
from tests.graph_step.emulation import EmulatedGpu, gpu
from tests.runner.steps import context_of

__all__ = ["gpu"]
SCOPES = "scope_forward_backward", "scope_forward"


class Refusing(torch.optim.SGD):
    """Raises in a capture, if it is told to; `late`: after the update; `counts`: its calls."""

    late = counts = False
    calls = 0

    @staticmethod
    def refuses() -> bool:
        return False

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        if not self.late and self.refuses():
            raise RuntimeError("this optimizer cannot be captured")
        super().step()
        self.calls += self.counts
        if self.refuses():
            raise RuntimeError("this optimizer cannot be captured")


class Bursts:
    """Times nothing."""

    host_us, eager, replay, done = (1.0,), [(1.0,)], [(1.0,)], True

    def __init__(self, *_: Any) -> None: ...
    def open(self) -> None: ...
    def close(self) -> None: ...
    def after_step(self) -> None: ...


class Script:
    """Trains under the passes; `fails` names the part of the step whose capture fails."""

    def __init__(self, folder: Path, gpu: EmulatedGpu, fails: str = "", **how: bool):
        torch.manual_seed(0)
        self.gpu, self.fails, self.ended = gpu, fails, ""
        self.model = torch.nn.Linear(4, 2)
        self.optimizer = Refusing(self.model.parameters(), lr=0.1, momentum=0.9)
        vars(self.optimizer).update(how)
        if fails == "optimizer":
            self.optimizer.refuses = gpu.capturing  # type: ignore[method-assign]
        period: tuple[StepEvent, ...] = ("forward", "backward", "optimizer")
        self.context = context_of(folder, self.model, self.optimizer)
        self.context.boundary = replace(self.context.boundary, period=period)
        self.context.schedule, self.context.replay = Schedule(verify=0), None
        self.context.on_gpu = True
        self.context.results["inspect"] = InspectResult(3, ("a",) * 3, ((),) * 3, (5,) * 3, ())

    def runner(self) -> PassRunner:
        def end(how: str) -> Callable[[], None]:
            return lambda: setattr(self, "ended", how)

        names = "replay", *SCOPES
        ends = end("done"), end("left")
        return PassRunner(self.context, names, True, 0.01, 0, *ends, lambda _: None, lambda: False)

    def train(self, steps: int, runner: PassRunner | None = None) -> list[torch.Tensor]:
        for _ in range(steps):
            x = torch.rand(3, 4)
            if runner is not None:
                runner.begin_step()
            self.optimizer.zero_grad()
            self.part("forward")
            loss = self.model(x).square().mean()
            if runner is not None:
                runner.part_ended("forward")
            self.part("backward")
            loss.backward()
            if runner is not None:
                runner.part_ended("backward")
            self.optimizer.step()
            if runner is not None:
                runner.end_step()
                if self.ended:
                    break
        state = [s["momentum_buffer"] for s in self.optimizer.state.values()]
        return [tensor.detach().clone() for tensor in (*self.model.parameters(), *state)]

    def part(self, name: str) -> None:
        if name == self.fails and self.gpu.capturing():
            raise RuntimeError(f"no capture of the {name}")

    def result(self, name: str) -> ReplayResult | None:
        """What is on disk."""
        folder = RunFolder(self.context.folder.path)
        return folder.read(f"pass-{name}", ReplayResult)


@pytest.fixture(autouse=True)
def no_cuda(monkeypatch: pytest.MonkeyPatch, gpu: EmulatedGpu) -> Iterator[None]:
    monkeypatch.setattr(replay_pass, "Bursts", Bursts)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (0, 0))
    with gpu.on(None):
        yield


@pytest.mark.parametrize("broken", [False, True])
def test_the_process_of_a_caller_is_repaired_or_the_caller_is_told(
    broken: bool, tmp_path: Path, gpu: EmulatedGpu
) -> None:
    script = Script(tmp_path, gpu)
    context: Context = script.context
    context.own_process = False
    runner = script.runner()
    runner.next_pass()
    script.train(1, runner)
    before = [parameter.grad for parameter in script.model.parameters()]
    runner.begin_step()
    script.optimizer.zero_grad()
    loss = script.model(torch.rand(3, 4)).square().mean()
    loss.backward()
    with pytest.raises(RuntimeError, match="not permitted") as raised:
        loss.item()
    gpu.broken = broken
    assert runner.takes_blame(raised.value)
    notes = [e for e in RunFolder(context.folder.path).events() if isinstance(e, Note)]
    assert len(notes) == broken
    if not broken:
        after = [parameter.grad for parameter in script.model.parameters()]
        assert [id(one) for one in after] == [id(one) for one in before]
        script.train(2)
