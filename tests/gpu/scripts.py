"""The training loop that the GPU tests change in one place each."""

from __future__ import annotations

from launchscope.model import SourceLine

_LOOP = """
import random
import torch
from torch import nn

torch.manual_seed(0)
random.seed(0)
{before}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(8))
        self.register_buffer("state", torch.zeros(64))
        self.captures = 0
        {init}

    def forward(self, x):
        {forward}
        for layer in self.layers:
            x = layer(x).relu()
        {after}
        return x

model = Net().cuda()
optimizer = {optimizer}
{setup}
for step in range(400):
    x = torch.randn(32, 64, device="cuda")
    y = torch.randn(32, 64, device="cuda")
    {zero}
    {begin}
    loss = (model(x) - y).pow(2).mean()
    {middle}
    {backward}
    {last}
    {update}
    {end}
"""
_USUAL = {
    "optimizer": "torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)",
    "zero": "optimizer.zero_grad()",
    "backward": "loss.backward()",
    "update": "optimizer.step()",
}
_PLACES = ("before", "init", "forward", "after", "setup", "begin", "middle", "last", "end")


def loop(**changes: str) -> str:
    """A small network that trains, with these places of the loop filled in.

    `forward` and `after` stand in the model, `middle` after the loss, `last` after the backward,
    `end` after the optimizer step. Lines of one place are indented alike.
    """
    filled = dict.fromkeys(_PLACES, "pass") | _USUAL | changes
    source = _LOOP
    for name, text in filled.items():
        line = next(line for line in source.splitlines() if "{" + name + "}" in line)
        indent = line[: len(line) - len(line.lstrip())]
        source = source.replace("{" + name + "}", text.strip().replace("\n", "\n" + indent))
    return source


def line_of(source: str, text: str) -> SourceLine:
    """The line of `train.py` that holds this text."""
    numbers = [n for n, line in enumerate(source.splitlines(), 1) if text in line]
    assert len(numbers) == 1, f"{text!r} is in lines {numbers}"
    return SourceLine("train.py", numbers[0])
