"""What a capture that fails leaves to do, and to whom; tried on an emulated CUDA graph."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from launchscope.model import InspectResult, ReplayResult, Schedule, StepEvent
from launchscope.runner.child.passes import Context
from launchscope.runner.child.passes import replay as replay_pass
from launchscope.runner.child.passes.pass_runner import PassRunner
from launchscope.runner.child.passes.timing import TimingPass
from launchscope.runner.parent.run_folder import RunFolder
from launchscope.runner.protocol.events import PassFailed, PassStarted, Remark
from tests.graphed.emulation import EmulatedGpu, gpu
from tests.runner.steps import context_of

__all__ = ["gpu"]
SCOPES = "scope_forward_backward", "scope_forward"


class Bursts:
    """Times nothing."""

    host_us, eager, replay, done = (1.0,), [(1.0,)], [(1.0,)], True

    def __init__(self, torch: Any, live: Any, *_: Any) -> None:
        self.live = live

    def open(self) -> None: ...
    def close(self) -> None: ...
    def after_step(self) -> None: ...


class Script:
    """Trains under the passes; `fails` names the part of the step whose capture fails."""

    def __init__(self, folder: Path, gpu: EmulatedGpu, fails: str = ""):
        self.gpu, self.fails, self.ended = gpu, fails, ""
        self.model = torch.nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.optimizer.register_step_pre_hook(lambda *_: self.part("optimizer"))
        period: tuple[StepEvent, ...] = ("forward", "backward", "optimizer")
        self.context = context_of(folder, self.model, self.optimizer)
        self.context.boundary = replace(self.context.boundary, period=period)
        self.context.schedule, self.context.replay = Schedule(verify=0), None
        self.context.on_gpu = True
        self.context.results["inspect"] = InspectResult(3, ("a",) * 3, ((),) * 3, (5,) * 3, ())

    def runner(self, *names: str) -> PassRunner:
        def end(how: str) -> Callable[[], None]:
            return lambda: setattr(self, "ended", self.ended or how)

        names = names or ("replay", *SCOPES)
        ends = end("done"), end("left")
        runner = PassRunner(names, *ends, lambda _: None)
        runner.start(self.context, 0)
        return runner

    def train(self, steps: int, runner: PassRunner | None = None) -> None:
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
    gc.enable()  # a process that ends after a failed capture leaves it off


@pytest.mark.parametrize(
    ("part", "known"), [("forward", SCOPES), ("backward", SCOPES[:1]), ("optimizer", ())]
)
def test_smaller_scopes_that_would_fail_in_the_same_way_need_no_other_process(
    part: str, known: tuple[str, ...], tmp_path: Path, gpu: EmulatedGpu
) -> None:
    script = Script(tmp_path, gpu, part)
    runner = script.runner()
    with pytest.raises(RuntimeError) as raised:
        script.train(12, runner)
    assert runner.takes_blame(raised.value)
    whole = script.result("replay")
    assert whole is not None
    assert whole.refused is not None
    assert whole.refused.part == part
    assert [name for name in SCOPES if script.result(name) is not None] == list(known)
    for name in known:
        scope = script.result(name)
        assert scope is not None
        assert scope.reason is not None
        assert (scope.status, scope.reason.code) == ("blocked", "blocker_in_part")
        assert f"scope_{scope.scope}" == name


@pytest.mark.parametrize("own_process", [True, False])
def test_a_pass_that_breaks_ends_its_process_unless_it_is_the_callers(
    own_process: bool, tmp_path: Path, gpu: EmulatedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(TimingPass, "start", breaks)
    script = Script(tmp_path, gpu)
    script.context.own_process = own_process
    script.context.results.clear()
    runner = script.runner("timing", "inspect")
    script.train(1, runner)
    assert script.ended == ("left" if own_process else "")
    events = list(RunFolder(tmp_path).events())
    assert [event.name for event in events if isinstance(event, PassFailed)] == ["timing"]
    started = [event.name for event in events if isinstance(event, PassStarted)]
    assert started == (["timing"] if own_process else ["timing", "inspect"])
    runner.cut_short()  # the inspection takes its modes off


@pytest.mark.parametrize("broken", [False, True])
def test_the_process_of_a_caller_is_repaired_or_the_caller_is_told(
    broken: bool, tmp_path: Path, gpu: EmulatedGpu
) -> None:
    script = Script(tmp_path, gpu)
    context: Context = script.context
    context.own_process = False
    runner = script.runner()
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
    notes = [e for e in RunFolder(context.folder.path).events() if isinstance(e, Remark)]
    assert len(notes) == broken
    if not broken:
        after = [parameter.grad for parameter in script.model.parameters()]
        assert [id(one) for one in after] == [id(one) for one in before]
        script.train(2)
