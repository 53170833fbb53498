"""The names of running modules, and the ops of an inspected step that have them."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from launchscope.runner.child.facts.step_ops import HostTensors, StepStream, make_dispatch_mode


class Inner(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mul(2)


class Outer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList([torch.nn.Sequential(Inner()), Inner()])
        self.blocks.append(self.blocks[1])  # shared: its first place counts
        self.again = self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        y: torch.Tensor = Inner()(x)  # made on the fly, and nowhere below
        return y.add(1)


def modules() -> Iterator[tuple[str, ...]]:
    stream, x = StepStream(), torch.ones(2, requires_grad=True)
    with make_dispatch_mode(torch, stream, lambda tensor: True, HostTensors()):
        Outer()(x.sub(1)).sum().backward()
    for record in stream.ops:
        yield record.modules


def test_each_op_has_the_modules_whose_forwards_ran() -> None:
    first, *found = modules()
    assert first == ()
    assert found[:5] == [
        ("Outer", "blocks.0", "0"), ("Outer", "blocks.1"), ("Outer", "blocks.1"),
        ("Outer", "Inner"), ("Outer",),
    ]  # fmt: skip
    assert set(found[5:]) == {()}  # the loss and the backward
