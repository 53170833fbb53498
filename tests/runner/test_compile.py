"""torch.compile under the hooks: compiled code runs compiled, and is compiled once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from launchscope.model import Schedule
from launchscope.runner.parent.session import RunOptions
from tests.runner.children import Batch, recorded

pytestmark = pytest.mark.child

HEAD = """\
import sys, torch
import torch.nn.functional as F
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
x, y = torch.randn(8, 4), torch.randint(0, 2, (8,))
"""
ADAM = "opt = torch.optim.Adam(net.parameters())\n"
COUNTING = """
calls = {"compiled": 0, "ran": 0}
def backend(graph, inputs):
    calls["compiled"] += 1
    def run(*args):
        calls["ran"] += 1
        return graph.forward(*args)
    return run
def report(): print(calls["compiled"], calls["ran"], file=open(sys.argv[1], "w"))
"""
LAYERS = """
class Layer(torch.nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.linear = torch.nn.Linear(*sizes)
    def forward(self, x):
        return self.linear(x).relu() + 1
net = torch.nn.Sequential(Layer(4, 4), torch.nn.Dropout(0.0), Layer(4, 2))
"""
COMPILED = {
    "compiled_module": """
model = torch.compile(net, backend=backend)
assert isinstance(model, torch._dynamo.eval_frame.OptimizedModule)
call = lambda: model(x)  # begins
""",
    "compiled_function": """
@torch.compile(backend=backend)
def model(x):
    return net(x)
call = lambda: model(x)  # begins
""",
    "compiled_in_place": """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net
    def forward(self, x):
        return self.net(x)
net = Net()
net.compile(backend=backend)
call = lambda: net(x)  # begins
""",
    "compiled_layers": """
net[0].compile(backend=backend)
net[2].compile(backend=backend)
call = lambda: net(x)  # begins
""",
}
COMPILED_LOOP = (
    ADAM
    + """
for step in range(11):
    opt.zero_grad()
    F.cross_entropy(call(), y).backward()
    opt.step()
    report()
for step in range(20):
    opt.zero_grad()
    F.cross_entropy(call(), y).backward()
    opt.step()
"""
)


LATE = """
model = net
for step in range(30):
    if step == 17:
        model = torch.compile(net, backend="eager")
    opt.zero_grad()
    F.cross_entropy(model(x), y).backward()
    opt.step()
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
INFERS = """
ahead = lambda: "torch._dynamo" in sys.modules
assert not ahead()
with torch.no_grad():
    for step in range(8):
        net(x)
        assert not ahead()
    model = torch.compile(net, backend="eager")
    for step in range(30):
        model(x)
"""


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Batch]:
    folder = tmp_path_factory.mktemp("compile")
    running = Batch(
        {
            name: partial(
                recorded,
                folder / name,
                HEAD + LAYERS + COUNTING + source + COMPILED_LOOP,
                str(folder / f"{name}.txt"),
            )
            for name, source in COMPILED.items()
        }
    )
    yield running
    running.close()


@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_region_runs_compiled_and_is_compiled_once(batch: Batch, name: str) -> None:
    ran = batch[name]
    step = ran.recording.step
    assert step is not None
    assert step.compiled
    assert step.period == (
        ("forward", "forward", "backward", "optimizer")
        if name == "compiled_layers"
        else ("forward", "backward", "optimizer")
    )
    assert ran.line(step.source).endswith("# begins")
    reported = ran.outcome.directory.parent.parent / f"{name}.txt"
    compiled, calls = (int(word) for word in reported.read_text().split())
    regions = 2 if name == "compiled_layers" else 1
    assert compiled == regions
    assert calls == 10 * regions  # each step before the inspection, the first included
    assert ran.recording.inspect is not None
    assert ran.recording.inspect.device_ops[0] > 10


def test_code_that_is_compiled_during_the_measurement_is_reported_as_missing(
    tmp_path: Path,
) -> None:
    some = Schedule(sizes=5, inspect=10)
    ran = recorded(tmp_path, HEAD + ADAM + LATE, schedule=some)
    notes = " ".join(ran.recording.notes)
    assert "torch.compile after step 17, when the measurement had begun" in notes


def test_a_value_read_in_compiled_code_is_told_from_one_read_outside(tmp_path: Path) -> None:
    ran = recorded(tmp_path, HEAD + ADAM + READS)
    assert ran.recording.inspect is not None
    found = {ran.line(b.where): b.compiled for b in ran.recording.inspect.blockers}
    assert found == {"inside = out.sum().item()": True, "outside = loss.item()": False}
    assert ran.recording.runs == 1


def test_dynamo_is_not_imported_before_the_script_compiles(tmp_path: Path) -> None:
    # A real start: modules that were imported ahead come in groups.
    options = RunOptions(environ={"TORCH_HOME": str(tmp_path)})
    ran = recorded(tmp_path, HEAD + INFERS, options=options)
    assert ran.outcome.problem is None
    assert ran.recording.step is not None
    assert ran.recording.step.compiled
