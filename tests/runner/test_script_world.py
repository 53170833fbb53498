"""A script changes the world around it: neither it nor the measurement notices the other."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.runner.children import SMALL_STEP, Batch, Said, launchscope, python

pytestmark = pytest.mark.child

TRAIN = SMALL_STEP.replace("net =", "torch.manual_seed(0)\nnet =") + "step()\n"
LOOP = "for i in range(30): step()\nprint('weight', net.weight.sum().item())\n"
# The script replaces and restores `backward` around every step, as a library may.
FOR_A_WHILE = """
import torch
calls = 0
def patched(original):
    def mine(*args, **kwargs):
        global calls
        calls += 1
        return original(*args, **kwargs)
    return mine
net = torch.nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(30):
    original = torch.Tensor.backward
    torch.Tensor.backward = mine = patched(original)
    opt.zero_grad()
    net(torch.ones(8, 4)).sum().backward()
    opt.step()
    assert torch.Tensor.backward is mine
    torch.Tensor.backward = original
print("calls", calls)
"""


@dataclass(frozen=True)
class Pair:
    """What a script prints and exits with under `python` and under `launchscope --full`."""

    alone: Said
    profiled: Said


FOLDERS = {
    "removes_its_folder": TRAIN + "import shutil\nshutil.rmtree(os.getcwd())\n" + LOOP,
    "removes_and_makes_it_again": TRAIN
    + "import shutil\nhere = os.getcwd()\nshutil.rmtree(here)\nos.mkdir(here)\n"
    + LOOP,
    "renames_its_folder": TRAIN + "os.rename(os.getcwd(), os.getcwd() + '-2')\n" + LOOP,
    "leaves_its_folder": TRAIN + "import tempfile\nos.chdir(tempfile.mkdtemp())\n" + LOOP,
}


AWKWARD = {
    "replaces a function of torch for a while": FOR_A_WHILE,
    "saves generators and looks at methods": TRAIN
    + """
import copy, inspect, pickle
names = "to", "cuda", "cpu", "forward"
def looked_at():
    found = [getattr(torch.nn.Module, name) for name in names]
    return [(f.__module__, f.__qualname__, str(inspect.signature(f)), f.__doc__) for f in found]
looks = set()
for i in range(30):
    step()
    looks.add((id(torch.Tensor.backward), repr(looked_at())))
generator = torch.Generator().manual_seed(5)
kept = pickle.loads(pickle.dumps({"generator": generator}))["generator"]
for one in (generator, kept, copy.deepcopy(generator)):
    print(isinstance(one, torch.Generator), torch.rand(2, generator=one).tolist())
print(len(looks), looked_at())
""",
    "compiles what asks whether it is overridden": TRAIN
    + """
F = torch.nn.functional
def weighted(x):
    return F.l1_loss(F.pad(x, (1, 1)), F.pad(3 * x, (1, 1)), weight=F.pad(x, (1, 1)) / 2)
compiled = torch.compile(weighted, backend="eager", fullgraph=True)
sums = []
for i in range(30):
    step()
    sums.append(compiled(torch.ones(2, 3)).item())
print(sums)
""",
    "has a torch.py that leads to PyTorch": """
import sys
with open("torch.py", "w") as file:
    file.write('print("the file beside it")\\nimport sys; here = sys.path.pop(0)\\n')
    file.write('del sys.modules["torch"]; import torch; sys.path.insert(0, here)\\n')
    file.write('sys.modules["torch"] = torch; globals().update(vars(torch))\\n')
import torch
print(sys.modules["torch"] is torch)
"""
    + TRAIN
    + LOOP,
    "nests its modules deep": TRAIN
    + """
class Nested(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def forward(self, x):
        return self.inner(x)
model = torch.nn.Linear(4, 2)
for depth in range(230):
    model = Nested(model)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(30):
    opt.zero_grad()
    model(torch.ones(8, 4)).sum().backward()
    opt.step()
print(sum(parameter.sum().item() for parameter in model.parameters()))
""",
    "asks whether its functions are overridden": TRAIN
    + """
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function_unary
F, asked, ran, fast = torch.nn.functional, [], [], []
class Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        asked.append(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))
class Own(torch.Tensor):
    pass
def function(x):
    ran.append(type(x).__name__)
    if has_torch_function_unary(x):
        return handle_torch_function(function, (x,), x)
    return F.softmax(x, -1)
layer = torch.nn.TransformerEncoderLayer(4, 2, 4, batch_first=True)
encoder = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
attention = torch.nn.MultiheadAttention(4, 2, batch_first=True).eval()
def watched(name):
    original = getattr(torch, name)
    def call(*args, **kwargs):
        fast.append(name)
        return original(*args, **kwargs)
    setattr(torch, name, call)
watched("_native_multi_head_attention")
watched("_transformer_encoder_layer_fwd")
backward = torch.Tensor.backward
padding = torch.tensor([[False, True, True], [False, False, True]])
sums = []
for i in range(30):
    step()
    x = torch.ones(2, 3, 4)
    function(x), function(x.as_subclass(Own))
    with Mode():
        function(x)
    sums.append(F.l1_loss(x, 3 * x, weight=x / 2).item())
    with torch.no_grad():
        sums.append(encoder(x, src_key_padding_mask=padding).double().sum().item())
        sums.append(attention(x, x, x, need_weights=False)[0].double().sum().item())
    assert torch.Tensor.backward is backward
softmax = torch.jit.script(torch.nn.Softmax(-1))
print(asked, ran, fast, sums, softmax(x).sum().item())
""",
    "compiles after everything is measured": TRAIN
    + """
graphs = []
def backend(graph, inputs):
    graphs.append(len(graph.graph.nodes))
    return graph
net = torch.nn.Sequential(net)
for i in range(30): step()
net.compile(backend=backend)  # of torch's own layers, Dynamo compiles nothing
for i in range(3): step()
print(graphs, net[0].weight.sum().item())
""",
    "replaces print, open and json.dumps": TRAIN
    + """
import builtins, io, json
calls = []
def counted(name, original):
    def mine(*args, **kwargs):
        calls.append(name)
        return original(*args, **kwargs)
    return mine
builtins.print, builtins.open = counted("print", print), counted("open", open)
json.dumps = lambda *args, **kwargs: calls.append("dumps") or b"{}"
for i in range(30): step()
sys.stdout.write(f"{calls}\\n")
sys.exit("ends with a message")
""",
    "freezes the clock": TRAIN
    + """
import os, threading
def wrong(*args): raise RuntimeError("not this clock")
time.time = time.perf_counter = time.perf_counter_ns = time.monotonic = wrong
"""
    + LOOP,
    "closes and limits files": TRAIN
    + """
import resource
os.closerange(3, 200)
resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
"""
    + LOOP,
    "clears the environment": TRAIN
    + """
import json, locale, signal, threading
os.environ.clear()
os.umask(0o077)
locale.setlocale(locale.LC_ALL, "C")
sys.setrecursionlimit(150)
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
    signal.signal(number, lambda *_: None)
for name in ("json", "threading", "linecache", "contextlib", "os"):
    sys.modules.pop(name, None)
"""
    + LOOP,
    "has no streams": TRAIN
    + """
for i in range(30): step()
sys.stdout = sys.stderr = None
sys.exit("to nobody")
""",
    "prints nothing but raises": TRAIN
    + """
for i in range(30): step()
sys.stderr = None
raise ValueError("unseen")
""",
}


# torch imports cProfile with Dynamo, and that the library's own `profile`, and
# numpy.random the library's `secrets`, while the script has loaded its own.
INFERS_BESIDE_A_PROFILE = """
import os, sys, tempfile
import secrets
import torch
names, folder = set(os.environ), tempfile.tempdir
net = torch.nn.Linear(3, 3)
with torch.no_grad():
    for _ in range(60):
        net(torch.ones(2, 3))
print("inferred", names ^ set(os.environ), tempfile.tempdir is folder)
print(secrets.KEY, sys.modules["secrets"] is secrets)
import profile
"""


def _both(folder: Path, source: str) -> Pair:
    profiled = launchscope(folder, source, "--full")
    (folder / "script.py").write_text(source)
    return Pair(python(folder, "script.py"), profiled)


def _in_folder(folder: Path, source: str) -> tuple[Path, Said]:
    """Run from a folder that is its own, with a relative and an absolute output."""
    (folder / "work").mkdir(parents=True)
    (folder / "script.py").write_text(source)
    outputs = ["-o", "relative.json", "-o", str(folder / "absolute.json")]
    script = str(folder / "script.py")
    said = python(folder / "work", "-m", "launchscope", "profile", *outputs, script)
    return folder, said


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Batch]:
    base = tmp_path_factory.mktemp("world")
    work: dict[str, Any] = {
        name: partial(_both, base / name, source) for name, source in AWKWARD.items()
    }
    work |= {n: partial(_in_folder, base / n, source) for n, source in FOLDERS.items()}
    batch = Batch(work)
    yield batch
    batch.close()


@pytest.mark.parametrize("name", AWKWARD)
def test_a_script_that_changes_its_world_is_measured_and_does_the_same(
    batch: Batch, name: str
) -> None:
    pair = batch[name]
    assert pair.alone.out in pair.profiled.out, pair.profiled.err
    # Two processes write there: a line of ours may stand within one of the script's.
    assert pair.alone.err in re.sub(r"launchscope: .*\n", "", pair.profiled.err)
    assert "inspecting, 3 steps" in pair.profiled.err
    assert pair.profiled.code == pair.alone.code
    ended = f"he script ended with exit code {pair.alone.code}"
    for printed in (pair.profiled.out, pair.profiled.err):
        assert (ended in " ".join(printed.split())) == (pair.alone.code != 0)


@pytest.mark.real_start  # where torch has not imported Dynamo yet, and Dynamo not cProfile
def test_a_file_beside_the_script_runs_only_if_the_script_imports_it(tmp_path: Path) -> None:
    (tmp_path / "profile.py").write_text("print('profile.py ran')\n")
    (tmp_path / "secrets.py").write_text("KEY = 'own'\n")
    pair = _both(tmp_path, INFERS_BESIDE_A_PROFILE)
    assert pair.alone.out == "inferred set() True\nown True\nprofile.py ran\n", pair.alone.err
    assert pair.alone.out in pair.profiled.out, pair.profiled.err
    assert "inspecting, 3 steps" in pair.profiled.err


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("removes_and_makes_it_again", "work"),
        ("renames_its_folder", "work-2"),
        ("leaves_its_folder", "work"),
    ],
)
def test_outputs_go_where_they_were_meant(batch: Batch, name: str, where: str) -> None:
    folder, said = batch[name]
    assert said.code == 0, said.err
    for path in (folder / "absolute.json", folder / where / "relative.json"):
        assert json.loads(path.read_text())["step"]["source"]["file"] == str(folder / "script.py")


def test_a_removed_folder_costs_only_the_output_in_it(batch: Batch) -> None:
    folder, said = batch["removes_its_folder"]
    assert said.code == 2, said.err
    assert "cannot write relative.json: No such file or directory" in said.err
    assert json.loads((folder / "absolute.json").read_text())["step"]["period"]
    for saved in Path(tempfile.gettempdir()).glob("launchscope-*/profile.json"):
        if str(saved) in said.err:
            saved.unlink()
            saved.parent.rmdir()


def test_lines_are_relative_to_the_folder_of_the_start(tmp_path: Path) -> None:
    source = "import os, tempfile\n" + TRAIN + "os.chdir(tempfile.mkdtemp())\n" + LOOP
    said = launchscope(tmp_path, source, "--full")
    assert "step at script.py:" in said.out
