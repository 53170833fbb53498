"""torch.compile under the hooks: compiled code runs compiled, and is compiled once."""

from __future__ import annotations

from pathlib import Path

import pytest

from launchscope.model import Schedule
from tests.runner.children import recorded

pytestmark = pytest.mark.child

HEAD = """\
import sys, torch
import torch.nn.functional as F
torch.manual_seed(0)
x, y = torch.randn(8, 4), torch.randint(0, 2, (8,))
class Layer(torch.nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.linear = torch.nn.Linear(*sizes)
    def forward(self, x):
        return self.linear(x).relu() + 1
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(Layer(4, 4), torch.nn.Dropout(0.0), Layer(4, 2))
    def forward(self, x):
        return self.layers(x)
net = Net()
calls = {"compiled": 0, "ran": 0}
def backend(graph, inputs):
    calls["compiled"] += 1
    def run(*args):
        calls["ran"] += 1
        return graph.forward(*args)
    return run
def train(model, steps):
    for step in range(steps):
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()
"""
ADAM = "opt = torch.optim.Adam(net.parameters())\n"
# How a script compiles, and how many parts of its step.
COMPILED = {
    "compiled_module": ("model = torch.compile(net, backend=backend)", 1),
    "compiled_function": (
        "@torch.compile(backend=backend, fullgraph=True)\ndef model(x): return net(x)", 1),
    "compiled_in_place": ("net.compile(backend=backend)\nmodel = net", 1),
    "compiled_layers": (
        "net.layers[0].compile(backend=backend)\nnet.layers[2].compile(backend=backend)\n"
        "model = net", 2),
}  # fmt: skip
COUNTED = f"""
{ADAM}
for step in range(11):
    train(model, 1)
    print(calls["compiled"], calls["ran"], file=open(sys.argv[1], "w"))
train(model, 20)
"""
READS = """
@torch.compile(backend="eager")
def model(x):
    out = net(x)
    inside = out.sum().item()
    return out
x, y = x.to("cuda"), y.to("cuda")
for step in range(30):
    opt.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    outside = loss.item()
    opt.step()
"""


@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_region_runs_compiled_and_is_compiled_once(tmp_path: Path, name: str) -> None:
    source, regions = COMPILED[name]
    counts = tmp_path / "counts.txt"
    ran = recorded(tmp_path, f"{HEAD}{source}{COUNTED}", str(counts))
    step = ran.recording.step
    assert step is not None
    assert step.compiled
    assert step.period == ("forward",) * regions + ("backward", "optimizer")
    calls_it = "return self.layers(x)" if regions > 1 else "F.cross_entropy(model(x), y).backward()"
    assert ran.line(step.source) == calls_it
    compiled, calls = (int(word) for word in counts.read_text().split())
    assert compiled == regions
    assert calls == 10 * regions  # each step before the inspection, the first included
    assert ran.recording.inspect is not None
    assert ran.recording.inspect.device_ops[0] > 10


def test_code_that_is_compiled_during_the_measurement_is_reported_as_missing(
    tmp_path: Path,
) -> None:
    late = "train(net, 17)\nnet.compile(backend='eager')\ntrain(net, 13)\n"
    ran = recorded(tmp_path, HEAD + ADAM + late, schedule=Schedule(inspect=15))
    notes = " ".join(ran.recording.notes)
    assert "torch.compile after step 17, when the measurement had begun" in notes


def test_a_value_read_in_compiled_code_is_told_from_one_read_outside(tmp_path: Path) -> None:
    ran = recorded(tmp_path, HEAD + ADAM + READS)
    assert ran.recording.inspect is not None
    found = {ran.line(b.where): b.compiled for b in ran.recording.inspect.blockers}
    assert found == {"inside = out.sum().item()": True, "outside = loss.item()": False}
    assert ran.recording.runs == 1
