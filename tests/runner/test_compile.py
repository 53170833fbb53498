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
    "compiled_by_optimize": """
import torch._dynamo
model = torch._dynamo.optimize(backend)(lambda x: net(x))
call = lambda: model(x)  # begins
""",
    "compiled_with_options": """
@torch.compile(backend=backend, fullgraph=True)
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
    "compiled_twice": """
@torch.compile(backend=backend)
def inner(x):
    return net(x)
@torch.compile(backend=backend)
def model(x):
    return inner(x) * 2
call = lambda: model(x)  # begins
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
    if step == 11:
        model = torch.compile(net, backend="eager")
    opt.zero_grad()
    F.cross_entropy(model(x), y).backward()
    opt.step()
"""
READS_EAGERLY = """
class Reads(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net
    def forward(self, x):
        self.largest = x.max().item()
        return self.net(x)
model = Reads()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(200):
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
# No warning, so that no line of ours is in one.
TRACED = """
import warnings
import torch._dynamo
warnings.simplefilter("error")
with open(sys.argv[1], "w") as file:
    for step in range(30):
        if step in (0, 4, 10, 11, 12, 20):
            seen, traced = torch._dynamo.explain(net)(x), torch._dynamo.export(net)(x).graph_module
            exported = torch.export.export(net, (x,), strict=True).graph_module
            sizes = [len(graph.graph.nodes) for graph in (traced, exported)]
            print(seen.graph_count, seen.graph_break_count, *sizes, file=file)
        opt.zero_grad()
        F.cross_entropy(net(x), y).backward()
        opt.step()
"""
OPERATORS = """
class Either(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (torch.nn.Linear(4, 4) for _ in range(3))
    def forward(self, x):
        x = self.first(x)
        taken = lambda x: self.third(x).relu()
        return torch.cond(x.sum() > 1e9, lambda x: self.second(x), taken, (x,))
net = Either()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
calls = 0
for step in range(30):
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
    calls += 1
print(calls, *(p.sum().item() for p in net.parameters()), file=open(sys.argv[1], "w"))
"""
NAMES_DEVICES = """
@torch.compile(backend=backend, fullgraph=True)
def model(x):
    return net(x.to("cuda") + torch.zeros(4, device=torch.device("cuda", 0)))
for step in range(30):
    opt.zero_grad()
    F.cross_entropy(model(x), y).backward()
    opt.step()
report()
"""
INFERS = """
ahead = lambda: "torch._dynamo" in sys.modules
assert not ahead()
with torch.no_grad():
    for step in range(8):
        net(x)
        assert not ahead()
    model = torch.compile(net, backend=backend)
    for step in range(30):
        model(x)
report()
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
    ran = recorded(tmp_path, HEAD + ADAM + LATE.replace("11", "17"), schedule=some)
    notes = " ".join(ran.recording.notes)
    assert "torch.compile after step 17, when the measurement had begun" in notes


def test_code_that_is_compiled_before_a_pass_is_over_is_measured(tmp_path: Path) -> None:
    ran = recorded(tmp_path, HEAD + ADAM + LATE)
    step, inspect = ran.recording.step, ran.recording.inspect
    assert step is not None
    assert step.compiled
    assert inspect is not None
    assert inspect.steps == 3
    notes = " ".join(ran.recording.notes)
    assert "the script ran 11 training steps before" in notes
    assert "torch.compile" not in notes


def test_a_value_read_in_compiled_code_is_told_from_one_read_outside(tmp_path: Path) -> None:
    ran = recorded(tmp_path, HEAD + ADAM + READS)
    assert ran.recording.inspect is not None
    found = {ran.line(b.where): b.compiled for b in ran.recording.inspect.blockers}
    assert found == {"inside = out.sum().item()": True, "outside = loss.item()": False}
    assert ran.recording.runs == 1


def test_a_value_read_in_a_forward_that_is_not_compiled_is_told_so(tmp_path: Path) -> None:
    ran = recorded(tmp_path, HEAD + READS_EAGERLY)
    assert ran.recording.inspect is not None
    assert [blocker.compiled for blocker in ran.recording.inspect.blockers] == [False]


def test_what_traces_the_model_in_a_script_sees_no_hook_of_ours(tmp_path: Path) -> None:
    reported = tmp_path / "traced.txt"
    ran = recorded(tmp_path, HEAD + ADAM + TRACED, str(reported))
    assert ran.outcome.problem is None
    assert ran.recording.runs == 1
    step, inspect = ran.recording.step, ran.recording.inspect
    assert step is not None
    assert step.period == ("forward", "backward", "optimizer")
    assert not step.compiled
    assert inspect is not None
    assert inspect.steps == 3
    # The step that traces the model has the ops of the others.
    assert len(set(inspect.device_ops)) == 1


def test_operators_that_torch_compiles_are_traced_without_hooks_and_inspected(
    tmp_path: Path,
) -> None:
    reported = tmp_path / "weights.txt"
    ran = recorded(tmp_path, HEAD + OPERATORS, str(reported))
    assert ran.outcome.problem is None
    step, inspect = ran.recording.step, ran.recording.inspect
    assert step is not None
    assert not step.compiled
    assert inspect is not None
    ops = {op.op for op in inspect.step_ops[-1]}
    assert {"aten.addmm", "aten.sum", "aten.nll_loss_forward"} <= ops
    assert "aten.relu" not in ops  # what the operator runs is not seen


def test_compiled_code_may_name_devices_without_a_gpu(tmp_path: Path) -> None:
    reported = tmp_path / "calls.txt"
    source = HEAD + ADAM + COUNTING + NAMES_DEVICES
    ran = recorded(tmp_path, source, str(reported))
    assert ran.outcome.problem is None
    assert ran.recording.inspect is not None


def test_dynamo_is_not_imported_before_the_script_compiles(tmp_path: Path) -> None:
    reported = tmp_path / "calls.txt"
    source = HEAD + COUNTING + INFERS
    # A real start: modules that were imported ahead come in groups.
    options = RunOptions(environ={"TORCH_HOME": str(tmp_path)})
    ran = recorded(tmp_path, source, str(reported), options=options)
    assert ran.outcome.problem is None
    assert ran.recording.step is not None
    assert ran.recording.step.compiled
