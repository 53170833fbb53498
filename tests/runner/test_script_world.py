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
# Each function of torch that a script may replace counts its calls. Prints the counts, and fails
# where another function has taken the place of the script's.
COUNTING = """
import torch
F, data = torch.nn.functional, torch.utils.data
counts = {}
def counted(owner, name):
    original, key = getattr(owner, name), f"{owner.__name__}.{name}"
    def mine(*args, **kwargs):
        counts[key] = counts.get(key, 0) + 1
        return original(*args, **kwargs)
    setattr(owner, name, mine)
    return mine
mine = {
    (owner, name): counted(owner, name)
    for owner, names in {
        torch.Tensor: "backward add norm __add__ item cpu to tolist __getitem__ detach clone numel "
        "untyped_storage element_size storage_offset stride set_ is_conj numpy",
        torch.autograd: "backward grad",
        F: "dropout layer_norm relu softmax cross_entropy linear",
        torch: "relu compile tensor einsum is_grad_enabled set_grad_enabled empty inference_mode",
        torch.nn.Module: "__call__ _call_impl zero_grad",
        torch.cuda: "synchronize",
        data.DataLoader: "__iter__",
        data.dataloader._BaseDataLoaderIter: "__next__",
    }.items()
    for name in names.split()
}
class Loss(torch.Tensor):
    def backward(self, *args, **kwargs):
        counts["Loss"] = counts.get("Loss", 0) + 1
        return super().backward(*args, **kwargs)
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Dropout(0.1))
counted(torch.optim.SGD, "step")
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def step(batch, number):
    opt.zero_grad()
    y = F.layer_norm(F.softmax(F.dropout(net(batch), 0.1), -1).add(1) + 1, (4,))
    loss = torch.einsum("ij->ij", y).to("cpu").cpu().norm() + F.cross_entropy(y, y.argmax(-1))
    (loss.as_subclass(Loss) if number % 2 else loss).backward()
    loss.item()
    opt.step()
batches = data.DataLoader(data.TensorDataset(torch.randn(64, 4)), batch_size=8)
for epoch in range(4):
    for number, (batch,) in enumerate(batches):
        step(batch.cpu(), number)
        lost = [name for (owner, name), ours in mine.items() if vars(owner)[name] is not ours]
        assert not lost, (epoch, number, lost)
print(sorted(counts.items()), net[0].weight.sum().item())
"""
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
NEVER_OURS = """
import torch
calls = 0
def mine(self, *args, **kwargs):
    global calls
    calls += 1
    torch.autograd.backward(self, *args, **kwargs)
torch.Tensor.backward = mine
net = torch.nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(30):
    opt.zero_grad()
    net(torch.ones(8, 4)).sum().backward()
    opt.step()
    assert torch.Tensor.backward is mine
print("calls", calls)
"""


@dataclass(frozen=True)
class Pair:
    """What a script prints and exits with under `python` and under `launchscope --full`."""

    alone: Said
    profiled: Said


SCRIPTS = {
    "counts_calls": COUNTING,
    "replaces_for_a_while": FOR_A_WHILE,
    "replaces_without_the_original": NEVER_OURS,
}
FOLDERS = {
    "removes_its_folder": TRAIN + "import shutil\nshutil.rmtree(os.getcwd())\n" + LOOP,
    "removes_and_makes_it_again": TRAIN
    + "import shutil\nhere = os.getcwd()\nshutil.rmtree(here)\nos.mkdir(here)\n"
    + LOOP,
    "renames_its_folder": TRAIN + "os.rename(os.getcwd(), os.getcwd() + '-2')\n" + LOOP,
    "leaves_its_folder": TRAIN + "import tempfile\nos.chdir(tempfile.mkdtemp())\n" + LOOP,
}


AWKWARD = {
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
threading.get_ident = wrong
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
os.unlink(__file__)
"""
    + LOOP,
    "makes torch warn": TRAIN
    + """
import warnings
scheduler = torch.optim.lr_scheduler.StepLR(opt, 20)
scheduler.step()
def copied(x):
    return torch.tensor(x)
x = torch.randn(8, 4)
for i in range(40):
    torch.tensor(x), copied(x), torch.meshgrid(torch.ones(2), torch.ones(2))
    torch.nn.functional.mse_loss(torch.ones(2), torch.ones(1))
    scheduler.step(i)
    step()
    if i in (5, 13):
        with warnings.catch_warnings(record=True) as seen:
            warnings.filterwarnings("always")
            copied(x), scheduler.step(i)
        print([(shown.filename == __file__, shown.lineno) for shown in seen])
    if i == 14:
        warnings.filterwarnings("error", module="__main__")
        try:
            torch.tensor(x)
        except UserWarning as error:
            print("raised", error)
        warnings.simplefilter("once")
print(sorted(str(key) for key in __warningregistry__ if key != "version"))
""",
    "traces its model": TRAIN
    + """
import warnings
warnings.filterwarnings("ignore", category=DeprecationWarning)
class Chooses(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = net
    def forward(self, x):
        return self.net(x) if x.sum() < 100 else x
def trace(module):
    torch.jit.trace(torch.nn.Sequential(module, torch.nn.ReLU()), torch.ones(2, 4))
trace(net), trace(Chooses())
warnings.filterwarnings("error", category=torch.jit.TracerWarning, append=True)  # as -W does
for i in range(30):
    step()
    trace(net)
"""
    + LOOP,
    "warns in its forwards": TRAIN
    + """
import warnings
class Old(torch.nn.Linear):
    def forward(self, x):
        warnings.warn("old", FutureWarning, stacklevel=2)
        warnings.warn("older", FutureWarning, stacklevel=3)
        return super().forward(x)
net = torch.nn.Sequential(Old(4, 4), Old(4, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def show(message, category, file, line, *more):
    print(i, category, message, file)
warnings.showwarning = show
for i in range(30):
    step()
    if i in (12, 20):
        warnings.simplefilter("always" if i == 12 else "default")
""",
    "runs code without line numbers": TRAIN
    + """
def train():
    for i in range(30):
        step()
        torch.tensor(net.weight.to("cpu")).norm().item()
    raise ValueError("at no line")
train.__code__ = train.__code__.replace(co_linetable=b"")
train()
""",
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
STACKS = (
    TRAIN
    + """
import logging, traceback, warnings
def outdated():
    warnings.warn("outdated", FutureWarning, stacklevel=3)
outdated()
@torch.library.custom_op("script::refuses", mutates_args=())
def refuses(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("refused")
logging.basicConfig(stream=sys.stdout, format="%(message)s %(filename)s %(lineno)d")
for i in range(30):
    step()
    logging.warning("here", stack_info=True)
    print(traceback.extract_stack(), traceback.format_stack(limit=2))
    try:
        torch.ones(2).sum().backward()
    except RuntimeError:
        logging.exception("failed")
    for fails in (lambda x: x @ x, lambda x: torch.add(x, x[0, :2]), refuses):
        try:
            fails(torch.ones(2, 3))
        except (RuntimeError, ValueError):
            logging.exception("failed in an operator")
    with torch.autograd.detect_anomaly(check_nan=i == 12):
        loss = (net.weight.sum() * 0).sqrt() * 0
        try:
            loss.backward()
        except RuntimeError as error:
            print(error)
    opt.zero_grad()
"""
)


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
# Of the standard library, launchscope has imported some before the script.
FINDERS = {
    "counts what it is asked for": """
class Counting:
    def __eq__(self, other):
        asked["eq"] += 1
        return self is other
    def find_spec(self, name, path=None, target=None):
        asked[name] += name.startswith(("torch", "nvtx", "numpy"))
sys.meta_path.insert(0, Counting())
sys.meta_path.append(Counting())
""",
    "finds torch itself, with a loader that nothing can be put into": """
class Loader:
    __slots__ = ("own",)
    def __init__(self, own):
        self.own = own
    def create_module(self, spec):
        asked["create"] += 1
    def exec_module(self, module):
        asked["exec"] += 1
        self.own.exec_module(module)
class Finding:
    def find_spec(self, name, path=None, target=None):
        asked[name] += name.startswith(("torch", "nvtx", "numpy"))
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and name == "torch":
            spec.loader = Loader(spec.loader)
        return spec
sys.meta_path.insert(0, Finding())
""",
}
FINDING = """
import collections, importlib.machinery, sys
asked = collections.Counter()
"""
INFERS = """
import torch
net = torch.nn.Linear(4, 2)
with torch.no_grad():
    for i in range(60):
        net(torch.ones(8, 4))
"""
ASKED = """
print(sorted((name, n) for name, n in asked.items() if n))
print([type(finder).__name__ for finder in sys.meta_path])
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
    said = python(folder / "work", "-m", "launchscope", "profile", "--full", *outputs, script)
    return folder, said


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Batch]:
    base = tmp_path_factory.mktemp("world")
    work: dict[str, Any] = {
        name: partial(_both, base / name, source) for name, source in (SCRIPTS | AWKWARD).items()
    }
    work |= {n: partial(_in_folder, base / n, source) for n, source in FOLDERS.items()}
    batch = Batch(work)
    yield batch
    batch.close()


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_function_that_the_script_replaced_runs_once_and_stays(batch: Batch, name: str) -> None:
    pair = batch[name]
    assert pair.alone.code == pair.profiled.code == 0, pair.profiled.err
    assert pair.profiled.out.startswith(pair.alone.out)
    assert "inspecting, 3 steps" in pair.profiled.err


@pytest.mark.parametrize("name", AWKWARD)
def test_a_script_that_changes_its_world_is_measured_and_does_the_same(
    batch: Batch, name: str
) -> None:
    pair = batch[name]
    assert pair.profiled.out.startswith(pair.alone.out), pair.profiled.err
    # Two processes write there: a line of ours may stand within one of the script's.
    assert pair.alone.err in re.sub(r"launchscope: .*\n", "", pair.profiled.err)
    assert "inspecting, 3 steps" in pair.profiled.err
    assert pair.profiled.code == pair.alone.code
    ended = f"he script ended with exit code {pair.alone.code}"
    for printed in (pair.profiled.out, pair.profiled.err):
        assert (ended in " ".join(printed.split())) == (pair.alone.code != 0)


@pytest.mark.real_start  # which has no frames of its own
def test_stacks_and_tracebacks_that_a_script_prints_are_those_of_python(tmp_path: Path) -> None:
    pair = _both(tmp_path, STACKS)
    assert pair.profiled.out.startswith(pair.alone.out)
    assert pair.alone.err in re.sub(r"launchscope: .*\n", "", pair.profiled.err)
    assert "inspecting, 3 steps" in pair.profiled.err


@pytest.mark.real_start  # where torch has not imported Dynamo yet, and Dynamo not cProfile
def test_a_file_beside_the_script_runs_only_if_the_script_imports_it(tmp_path: Path) -> None:
    (tmp_path / "profile.py").write_text("print('profile.py ran')\n")
    (tmp_path / "secrets.py").write_text("KEY = 'own'\n")
    pair = _both(tmp_path, INFERS_BESIDE_A_PROFILE)
    assert pair.alone.out == "inferred set() True\nown True\nprofile.py ran\n", pair.alone.err
    assert pair.profiled.out.startswith(pair.alone.out), pair.profiled.err
    assert "inspecting, 3 steps" in pair.profiled.err


@pytest.mark.real_start
@pytest.mark.parametrize(
    ("name", "loop"), list(zip(FINDERS, (INFERS, TRAIN + LOOP))), ids=list(FINDERS)
)
def test_import_finders_of_a_script_are_asked_as_under_python(
    tmp_path: Path, name: str, loop: str
) -> None:
    pair = _both(tmp_path, FINDING + FINDERS[name] + loop + ASKED)
    assert "('torch', 1)" in pair.alone.out
    assert pair.profiled.out.startswith(pair.alone.out), pair.profiled.err
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
    assert "weight" in said.out
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
