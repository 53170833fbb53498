"""Padding is measured where steps of changing sizes also read values; on an emulated CUDA graph."""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from launchscope.model import BlockerRecord, InspectResult, ShapesResult, SourceLine, TensorShape
from launchscope.runner.child.passes import Context
from launchscope.runner.child.passes import replay as replay_pass
from launchscope.runner.child.passes.replay_shapes import ReplayShapesPass
from tests.graphed.emulation import EmulatedGpu, gpu
from tests.runner.steps import context_of

pytestmark = pytest.mark.slow

__all__ = ["gpu"]
GRAPHS = 4
Step = Callable[[Any, Any], Any]


class Bursts:
    """Times nothing, in three steps."""

    host_us, eager, replay = (1.0,), [(1.0, 1.0)], [(0.5, 0.5)]

    def __init__(self, torch: Any, live: Any, *_: Any) -> None:
        self.live, self.steps = live, 0

    @property
    def done(self) -> bool:
        return self.steps >= 3

    def open(self) -> None:
        self.steps += 1

    def close(self) -> None: ...
    def after_step(self) -> None: ...


@pytest.fixture(autouse=True)
def no_cuda(monkeypatch: pytest.MonkeyPatch, gpu: EmulatedGpu) -> Iterator[None]:
    monkeypatch.setattr(replay_pass, "Bursts", Bursts)
    # It looks at every object of the process, four times here.
    monkeypatch.setattr(replay_pass, "live_memory", lambda torch: [])
    monkeypatch.setattr(Context, "on_device", lambda context, tensor: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (0, 0))
    with gpu.on(None):
        yield
    gc.enable()


def pooled(x: Any, batch: Any) -> Any:
    """As the pooling of a graph library that is not told how many graphs there are."""
    count = int(batch.max()) + 1
    return torch.zeros(count, 4).index_add(0, batch, x)


def positive(x: Any, batch: Any) -> Any:
    return x[x[:, 0] > 0]


def counted(x: Any, batch: Any) -> Any:
    return x * float(int((x > 0.1).sum()))


def trained(folder: Path, step: Step, sizes: list[int]) -> tuple[ShapesResult, list[float]]:
    """The result of the pass, and the losses that the script reads."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    context = context_of(folder, model, optimizer)
    context.on_gpu, context.replay = True, None
    inputs: list[tuple[TensorShape, ...]] = []
    context.step_inputs = lambda: inputs[-1]
    blocker = BlockerRecord("aten._local_scalar_dense", "sync", SourceLine("t.py", 3), 1)
    openings = tuple((TensorShape((size, 4), "float32"),) for size in sizes[:3])
    signatures = tuple(map(str, sizes[:3]))
    context.results["inspect"] = InspectResult(
        3, signatures, ((),) * 3, (5,) * 3, (blocker,), openings=openings
    )
    entry = ReplayShapesPass()
    assert entry.skip(context) is None
    entry.start(context)
    losses, done = [], False
    for size in sizes:
        x, batch = torch.randn(size, 4), torch.arange(size) * GRAPHS // size
        inputs.append((TensorShape((size, 4), "float32"), TensorShape((size,), "int64")))
        entry.begin()
        optimizer.zero_grad()
        loss = model(step(x, batch)).square().mean()
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
        done = entry.end()
        if done:
            break
    return entry.finish(complete=done), losses


SIZES = random.Random(0).sample(range(20, 400), 120)


@pytest.mark.parametrize("step", [pooled, counted])
def test_a_step_that_reads_values_is_captured_at_a_few_sizes(
    tmp_path: Path, gpu: EmulatedGpu, step: Step
) -> None:
    result, losses = trained(tmp_path, step, SIZES)
    assert result.reason is None
    assert 1 <= len(result.padded) <= 4
    assert result.stubbed == 2  # the count and the loss
    assert len(gpu.graphs) == len(result.padded)
    assert all(len(shape.eager_sizes) == 2 for shape in result.padded)
    assert all(map(math.isfinite, losses))


def test_a_step_whose_values_decide_its_sizes_is_not_captured(
    tmp_path: Path, gpu: EmulatedGpu
) -> None:
    result, losses = trained(tmp_path, positive, SIZES)
    assert (gpu.graphs, result.padded) == ([], ())
    assert result.reason is not None
    assert (result.reason.code, result.reason.details["op"]) == ("sizes_from_values", "aten.index")
    assert "test_sizes_beside_blockers.py" in str(result.reason.details["file"])
    assert len(losses) < 40  # it is known soon, and the script goes on
    ended, _ = trained(tmp_path, positive, SIZES[:5])
    assert ended.reason is not None
    assert ended.reason.code == "script_ended"
