"""What a watched call says about each line of a step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from launchscope.graphed import LineRecord, graphed
from tests.graphed.emulation import EmulatedGpu, gpu

__all__ = ["gpu"]
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen: list[int] = []
factor = 2.0


def scaled(loss: torch.Tensor) -> torch.Tensor:
    return loss * factor


@graphed
def step(x: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    loss = scaled(model(x).square().mean())
    loss.backward()
    seen.append(len(seen))
    optimizer.step()
    loss.item()
    return loss.detach()


@pytest.mark.filterwarnings("ignore::launchscope.graphed.GraphedWarning")
def test_each_line_says_what_it_ran_read_and_changed(gpu: EmulatedGpu) -> None:
    for _ in range(3):
        step(torch.ones(4, 8))
    function: Any = step.__dict__["__wrapped__"]
    records = {record.line - function.__code__.co_firstlineno: record
               for record in step.lines}  # fmt: skip
    clears, computes, backward, appends, updates, reads, returns = (records[n] for n in range(2, 9))
    assert all(isinstance(record, LineRecord) for record in records.values())
    assert clears.gradients == {"model.weight", "model.bias"}
    assert computes.operations > 0
    assert f"{__name__}.factor" in computes.globals
    assert not computes.values | computes.written | computes.gradients
    assert backward.gradients == {"model.weight", "model.bias"}
    assert (appends.operations, set(appends.values)) == (0, {"seen"})
    assert updates.written >= {"model.weight", "model.bias"}
    assert (reads.host_reads, returns.host_reads) == (1, 0)
