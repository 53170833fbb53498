"""After a failed capture the process trains on as if none had been tried, and captures again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import launchscope
from launchscope.graphed.capture import GraphCapture, SavedState
from launchscope.runner.child.capture.state import before_capture
from tests.gpu import scripts
from tests.gpu.conftest import ProfileScript, recommends
from tests.gpu.test_scopes import BACKWARD

pytestmark = pytest.mark.gpu
Tensor = torch.Tensor


class Training:
    """A model with dropout that trains on a side stream, with AMP's scaler where `scaled`."""

    def __init__(self, optimizer: str, scaled: bool = False) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(32, 64), nn.Dropout(0.2), nn.Linear(64, 8)).cuda()
        made: Any = getattr(torch.optim, optimizer)
        flags = {} if optimizer == "SGD" else {"capturable": True, "fused": scaled}
        self.optimizer = made(self.model.parameters(), lr=1e-2, **flags)
        self.scaler = torch.amp.GradScaler("cuda", enabled=scaled)
        self.x = torch.randn(16, 32, device="cuda")
        self.mine = torch.Generator("cuda")  # that no graph knows
        self.other = torch.randn(48, 48, device="cuda")
        self.losses: list[float] = []

    def step(self, inside: Callable[[Training, Tensor], Any] = lambda *_: None) -> Tensor:
        self.optimizer.zero_grad()
        loss: Tensor = self.model(self.x).square().mean()
        inside(self, loss)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.losses.append(float(self.step()))

    def state(self) -> list[Tensor]:
        buffers = [t for s in self.optimizer.state.values() for t in s.values()]
        return [torch.tensor(self.losses), *self.model.parameters(), *buffers]

    def saved(self) -> SavedState:
        return before_capture(torch, [self.model], [self.optimizer])


def capture(training: Training, inside: Callable[[Training, Tensor], Any]) -> tuple[Any, Tensor]:
    """The graph of one step and its loss. Raises what the capture raises; then it is repaired."""
    before, capture = training.saved(), GraphCapture()
    try:
        with capture:
            capture.begin()
            loss = training.step(inside)
            return capture.end(), loss
    except Exception:
        assert capture.repair(before)
        raise


def raises(training: Training, loss: Tensor) -> None:
    raise ValueError("in the middle")


def draws(training: Training, loss: Tensor) -> None:
    torch.rand(4, device="cuda", generator=training.mine)


def synchronizes(training: Training, loss: Tensor) -> None:
    torch.cuda.synchronize()


def no_room(training: Training, loss: Tensor) -> None:
    torch.empty(10**13, device="cuda")


def leaves_a_stream(training: Training, loss: Tensor) -> None:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        training.other.add(1)


FAILURES: dict[str, Callable[[Training, Tensor], Any]] = {
    "item": lambda _, loss: loss.item(),
    "tensor_of_the_host": lambda _, loss: loss + torch.ones(3).to("cuda").sum(),
    "index_of_the_host": lambda training, _: training.other[torch.tensor([3, 1])],
    "nonzero": lambda training, _: training.other.nonzero(),
    "exception": raises,
    "unregistered_generator": draws,
    "synchronize": synchronizes,
    "out_of_memory": no_room,
    "stream_that_is_not_joined": leaves_a_stream,
}


@pytest.fixture(autouse=True)
def side_stream() -> Any:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)


@pytest.mark.parametrize("inside", [lambda *_: None, leaves_a_stream], ids=["alone", "stream"])
def test_a_fused_optimizer_that_refuses_under_a_scaler_leaves_no_trace(
    inside: Callable[[Training, Tensor], Any],
) -> None:
    trained = []
    for fails in (False, True):
        training = Training("SGD", scaled=True)
        training.optimizer = torch.optim.Adam(training.model.parameters(), lr=1e-2, fused=True)
        training.train(5)
        for _ in range(2 * fails):
            with pytest.raises(RuntimeError):
                capture(training, inside)
        training.train(5)
        trained.append(training.state())
    assert all(map(torch.equal, *trained))


@pytest.mark.parametrize(
    ("optimizer", "scaled"), [("SGD", False), ("AdamW", False), ("Adam", True)]
)
@pytest.mark.parametrize("failure", FAILURES)
def test_the_process_trains_on_bit_by_bit_and_captures_again(
    failure: str, optimizer: str, scaled: bool
) -> None:
    alone = Training(optimizer, scaled)
    alone.train(35)
    training = Training(optimizer, scaled)
    training.train(5)
    for _ in range(2):
        with pytest.raises((RuntimeError, ValueError)):
            capture(training, FAILURES[failure])
    training.train(30)
    assert len(alone.state()) == len(training.state())
    assert all(map(torch.equal, alone.state(), training.state()))

    position = torch.cuda.get_rng_state()
    graph, loss = capture(training, lambda *_: None)
    replayed = []
    for _ in range(3):
        graph.replay()
        replayed.append(float(loss))
    torch.cuda.set_rng_state(position)
    alone.train(3)
    torch.testing.assert_close(replayed, alone.losses[-3:], rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(training.state()[1], alone.state()[1], rtol=1e-4, atol=1e-6)


def test_memory_goes_back_to_the_gpu_after_a_failed_capture() -> None:
    """Until the allocator knows that the capture is over, it keeps what other streams have used."""
    training, other = Training("SGD"), torch.cuda.Stream()
    training.train(5)
    with pytest.raises(RuntimeError):
        capture(training, FAILURES["item"])
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    for _ in range(20):
        tensor = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
        tensor.record_stream(other)
        del tensor
        torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == before


def test_measure_leaves_a_process_that_trains_and_captures() -> None:
    training = Training("AdamW")

    def step(x: Tensor) -> None:
        loss = training.step()
        if torch.cuda.is_current_stream_capturing():
            loss.item()

    profile = launchscope.measure(step, training.x)
    assert profile.replay.status == "failed"
    assert not any("CUDA does not work" in note for note in profile.notes)
    training.train(5)
    graph, loss = capture(training, lambda *_: None)
    graph.replay()
    assert float(loss) > 0


# What the runner does with a script after such a failure.


def ran_again(notes: tuple[str, ...]) -> list[str]:
    return [note for note in notes if "run again" in note]


def test_a_backward_that_fails_is_not_captured_twice(profile_script: ProfileScript) -> None:
    source = scripts.loop(before=BACKWARD, after="x = Identity.apply(x)")
    profile = profile_script(source).measured
    assert profile.replay.status == "failed"
    larger, smaller = profile.replay.scopes
    assert (larger.scope, larger.status) == ("forward_backward", "blocked")
    assert larger.reason is not None
    assert larger.reason.code == "blocker_in_part"
    assert (smaller.scope, smaller.status) == ("forward", "measured")
    assert len(profile.blockers) == 1
    recommends(profile, "adopt_after_fixes")
    assert len(ran_again(profile.notes)) == 1
