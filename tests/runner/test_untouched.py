"""A script under `--full` ends in the state that `python train.py` leaves, bit for bit.

Each script counts what is asked of its objects, and draws a random number whenever one is: one
question more changes the random state, and with it the weights.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.runner.children import Batch, launchscope, python

pytestmark = pytest.mark.child

WORKLOADS = Path(__file__).parents[2] / "sample_workloads"
START = """
import collections, random, warnings
import numpy as np
import torch
from torch import nn
COUNTS = collections.Counter()
def touch(what):
    COUNTS[what] += 1
    random.random(), np.random.rand(), torch.rand(1)
random.seed(1), np.random.seed(2), torch.manual_seed(3)
device = "cpu"
"""
# Prints what is left: counts, random states, and whatever `weights` holds.
END = """
import hashlib
counts = dict(sorted(COUNTS.items()))
def digest(*parts):
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
_, keys, position, *_ = np.random.get_state()
states = digest(random.getstate(), keys.tobytes(), position, torch.get_rng_state().tolist())
values = [torch.Tensor.detach(w).as_subclass(torch.Tensor).numpy().tobytes() for w in weights]
print("\\nSTATE", counts, states, digest(values))
"""
# Everything that Python can ask of an object, counted.
COUNTING = """
def counting(name, answer):
    def method(self, *args):
        touch(name)
        return answer(self, *args)
    return method
def missing(self, name):
    raise AttributeError(name)
class Asked:
    __class__ = property(counting("class", type))
    __dict__ = property(counting("dict", lambda self: {}))
    __eq__ = counting("eq", lambda self, other: self is other)
    __hash__ = counting("hash", id)
    __len__ = counting("len", lambda self: 2)
    __bool__ = counting("bool", lambda self: True)
    __iter__ = counting("iter", lambda self: iter(()))
    __contains__ = counting("contains", lambda self, value: False)
    __repr__ = __str__ = counting("repr", lambda self: "asked")
    __getitem__ = counting("getitem", lambda self, key: torch.rand(8, 4))
    __getattr__ = counting("getattr", missing)
    __name__ = property(counting("name", lambda self: "asked"))
    __module__ = property(counting("module", lambda self: "asked"))
    to = cuda = counting("to", lambda self, device=None: torch.rand(8, 4))
    batch = property(counting("batch", lambda self: torch.rand(8, 4)))
    shape = device = property(counting("shape", lambda self: None))
"""
SCRIPTS = {
    "everything counts": COUNTING
    + """
class Net(Asked, nn.Module):
    def __init__(self):
        nn.Module.__init__(self)
        nn.Module.__setattr__(self, "inner", nn.Linear(4, 2))
    __dict__ = nn.Module.__dict__["__dict__"]
    __getattr__ = nn.Module.__getattr__
    __setattr__ = nn.Module.__setattr__
    __class__ = property(counting("class of a module", type))
    def parameters(self, recurse=True):
        touch("parameters")
        return nn.Module.parameters(self, recurse)
    named_parameters = buffers = modules = children = None
    def state_dict(self):
        touch("state_dict")
    def __call__(self, *args, **kwargs):
        return nn.Module.__call__(self, *args, **kwargs)
    def forward(self, x, *more):
        return nn.Module.__getattr__(self, "inner")(x)
class Steps(torch.optim.Adam):
    __hash__ = counting("hash of an optimizer", id)
    __eq__ = counting("eq of an optimizer", lambda self, other: self is other)
    __bool__ = counting("bool of an optimizer", lambda self: True)
net, asked = Net(), Asked()
inner = nn.Module.__getattr__(net, "inner")
opt = Steps(list(inner.parameters()), lr=0.01)
schedule = torch.optim.lr_scheduler.StepLR(opt, 20)
keyed = {asked: torch.rand(8, 4), 0: torch.rand(8, 4), "x": torch.rand(8, 4)}
for step in range(60):
    x = asked[step].to(device) + asked.batch.to(device) + asked.to(device)
    x = x + keyed[0].to(device) + keyed["x"].to(device) + keyed[asked].to(device)
    opt.zero_grad()
    loss = net(x, asked, [asked], {"a": asked}).sum()
    loss = loss + asked[step].to(device).sum()
    loss.backward()
    opt.step()
    schedule.step()
weights = list(inner.parameters())
""",
    "kernels of torch": """
library = torch.library.Library("aten", "IMPL")
def sqrt(x):
    touch("sqrt")
    return torch.pow(x, 0.5)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    library.impl("sqrt", sqrt, "CPU")
net = nn.Linear(4, 2)
opt = torch.optim.Adam(net.parameters())
for step in range(60):
    opt.zero_grad()
    net(torch.randn(8, 4)).square().mean().backward()
    opt.step()
weights = list(net.parameters())
""",
    "classes of tensors": """
import torch.utils._pytree as pytree
def asked(name):
    found = getattr(torch.Tensor, name)
    if callable(found):
        def method(self, *args, **kwargs):
            touch(name)
            return found(self, *args, **kwargs)
        return method
    def read(self):
        touch(name)
        return found.__get__(self)
    return property(read)
NAMES = ("dtype", "shape", "ndim", "is_leaf", "nbytes", "numel", "untyped_storage", "element_size",
         "storage_offset", "detach", "clone", "size", "is_pinned", "is_conj")
class Named(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl
for name in NAMES:
    setattr(Named, name, asked(name))
class Wrapped(torch.Tensor):
    @staticmethod
    def __new__(cls, raw):
        return torch.Tensor._make_wrapper_subclass(
            cls, raw.shape, strides=raw.stride(), dispatch_sizes_strides_policy="sizes"
        )
    def __init__(self, raw):
        self.raw = raw
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        touch(str(func))
        def unwrap(value):
            return value.raw if type(value) is Wrapped else value
        result = func(*pytree.tree_map(unwrap, args), **pytree.tree_map(unwrap, kwargs or {}))
        made = ("aten::detach", "aten::clone", "aten::zeros_like")
        if func._schema.name in made:
            return Wrapped(result)
        return args[0] if func._schema.name.endswith("_") else result
    __torch_function__ = torch._C._disabled_torch_function_impl
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 8)
        self.named = nn.Parameter(torch.randn(8, 8))
        self._parameters["named"] = torch.Tensor._make_subclass(Named, self.named.data, True)
        self.wrapped = nn.Parameter(Wrapped(torch.randn(2, 8)))
    def forward(self, more, x):
        return nn.functional.linear(self.inner(x) @ self.named, self.wrapped)
net = Net()
opt = torch.optim.AdamW(net.parameters(), lr=0.01)
for step in range(60):
    opt.zero_grad()
    x = torch.rand(8, 4).as_subclass(Named)
    net(Wrapped(torch.rand(3)), x.to(device)).square().mean().backward()
    nn.utils.clip_grad_norm_([net.named, net.inner.weight], 1.0)
    net.inner.weight.grad = net.inner.weight.grad.as_subclass(Named)
    opt.step()
weights = [net.inner.weight, net.inner.bias, net.wrapped.data.raw]
""",
    "names and sources of its own": """
import linecache, sys
class Word(str):
    __hash__ = str.__hash__
    def __eq__(self, other):
        touch("eq of a word")
        return str.__eq__(self, other)
class Loader:
    def get_source(self, name):
        touch("source")
        return SOURCE
class Held:
    pass
SOURCE = "def forward(net, x):\\n    return net(x.to('cpu'))\\n"
own = {"__name__": "made", "__loader__": Loader()}
exec(compile(SOURCE, "made.py", "exec"), own)
linecache.lazycache("made.py", own)
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
shown = warnings.catch_warnings(record=True)
seen = shown.__enter__()
def train():
    step, kept = 0, sys._getframe().f_locals
    for step in range(60):
        held = Held()
        setattr(held, Word("x"), torch.rand(8, 4))
        warnings.warn(ResourceWarning(f"left open {step}"), source=held)
        opt.zero_grad()
        loss = own["forward"](net, held.x.to("cpu"))
        loss.sum().backward()
        opt.step()
        COUNTS[f"kept {kept.get('step')}"] += 1
warnings.simplefilter("always")
train()
COUNTS["sources"] = sum(warning.source is not None for warning in seen)
weights = list(net.parameters())
""",
    "dataset in the step": """
class Data(torch.utils.data.Dataset):
    def __getitem__(self, index):
        touch("read")
        return torch.randn(8, 4), torch.randn(8, 2)
data = Data()
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(60):
    opt.zero_grad()
    loss = (net(data[step][0].to(device)) - data[step][1].to(device)).square().mean()
    loss.backward()
    opt.step()
weights = list(net.parameters())
""",
    "property that reads a queue": """
import queue
class Source:
    def __init__(self):
        self.queue = queue.Queue()
        for _ in range(60):
            self.queue.put(torch.randn(8, 4))
    @property
    def next(self):
        touch("next")
        return self.queue.get()
source = Source()
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(60):
    opt.zero_grad()
    net(source.next.to(device)).sum().backward()
    opt.step()
weights = list(net.parameters())
""",
    "model with __getattr__": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 2)
    def __getattr__(self, name):
        touch(name)
        return super().__getattr__(name)
    def forward(self, x):
        return self.inner(x.to(device)) + self.inner.bias.to(device)
net = Net()
opt = torch.optim.AdamW(net.parameters(), lr=0.1)
for step in range(60):
    opt.zero_grad()
    net(torch.randn(8, 4)).sum().backward()
    opt.step()
weights = list(net.parameters())
""",
    "tensor subclass": """
class Mine(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        touch(getattr(func, "__name__", ""))
        return super().__torch_function__(func, types, args, kwargs)
    @property
    def tag(self):
        touch("tag")
        return self
net = nn.Linear(4, 2)
net.scale = nn.Parameter(torch.ones(2).as_subclass(Mine))
opt = torch.optim.Adam(net.parameters(), lr=0.1, foreach=True)
data = torch.randn(4, 8, 4).as_subclass(Mine)
for step in range(60):
    opt.zero_grad()
    loss = (net(data[step % 4].to(device)) * net.scale).sum() + data[0].tag.to(device).sum()
    loss.backward()
    opt.step()
    data[0].sum().cpu(), data[0].tolist(), data[0].numpy(force=True), data[0].detach().cpu()
weights = list(net.parameters())
""",
    "tensors that their class builds in the step": """
class Batch(torch.Tensor):
    pass
class Named(torch.Tensor):
    @staticmethod
    def __new__(cls, data, name):
        return super().__new__(cls, data)
    def __init__(self, data, name):
        self.name_of_batch = name
net = nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(60):
    x = Batch([1.0, 2.0]) + Batch(torch.rand(2)) + Batch(1, 2).zero_()
    y = Named(torch.rand(2, requires_grad=True), "second")
    opt.zero_grad()
    net(x).sum().backward()
    net(y).sum().backward()
    opt.step()
COUNTS[type(x), type(y), y.name_of_batch, y.grad_fn.name(), "__new__" in vars(torch.Tensor)] += 1
COUNTS = {str(key): count for key, count in COUNTS.items()}
weights = list(net.parameters())
""",
    "function mode around the loop": """
from torch.overrides import TorchFunctionMode
class Seen(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        touch(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, foreach=True)
data = torch.randn(4, 8, 4)
with Seen():
    for step in range(60):
        opt.zero_grad()
        net(data[step % 4].to(device)).sum().backward()
        opt.step()
weights = list(net.parameters())
""",
    "inference mode in each step": """
net = nn.Linear(4, 2)
weights = []
for step in range(60):
    with torch.inference_mode():
        out = net(torch.rand(8, 4))
    weights.append(torch.from_numpy(out.double().cpu().numpy()))
    COUNTS[repr(out)[:7]] += 1
""",
    "inference mode under autocast": """
lstm, net = nn.LSTM(4, 4), nn.Linear(4, 4)
weights = []
for step in range(60):
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        out = net(torch.rand(2, 8, 4).transpose(0, 1))
        out = torch.einsum("btc,dc->btd", lstm(out)[0], net.weight)
        COUNTS[str(out.dtype)] += 1
    weights.append(torch.from_numpy(out.double().numpy()))
    with torch.inference_mode():
        weights.append(torch.from_numpy(net(torch.rand(2, 8, 4).transpose(0, 1)).numpy()))
""",
    "a spatial transformer under autocast": """
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
places, mix = nn.Linear(16, 6), nn.Bilinear(16, 16, 2)
encoder = nn.TransformerEncoderLayer(16, 2, 16, batch_first=True).eval()
net = nn.ModuleList([places, mix, encoder])
opt = torch.optim.SGD(net.parameters(), lr=0.01)
def moved(x):
    grid = F.affine_grid(places(x.flatten(1)).reshape(-1, 2, 3), [8, 1, 4, 4], align_corners=False)
    COUNTS[str(grid.dtype)] += 1
    x = F.grid_sample(x, grid.float(), align_corners=False).flatten(1)
    return torch.cdist(x.repeat(4, 1), x).sum() + mix(x, x).sum()
for step in range(60):
    opt.zero_grad()
    x = torch.rand(8, 1, 4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        loss = checkpoint(moved, x, use_reentrant=False) if step % 2 else moved(x)
        with torch.no_grad():
            COUNTS[f"{encoder(x.flatten(2)).double().sum():.9f}"] += 1
    loss.backward()
    opt.step()
weights = list(net.parameters())
""",
    "singular values and eigenvalues without a gradient": """
net = nn.Linear(8, 8)
opt = torch.optim.SGD(net.parameters(), lr=0.01)
weights = []
for step in range(60):
    opt.zero_grad()
    net(torch.rand(8, 8)).square().mean().backward()
    opt.step()
    with torch.no_grad():
        w, both = net.weight, net.weight + net.weight.T
        weights += [torch.linalg.svdvals(w), torch.linalg.eigvalsh(both), w.norm(p="nuc")]
        weights += [torch.linalg.cond(w), torch.linalg.norm(w, 2), torch.norm(w, p="nuc")]
        weights += [torch.linalg.matrix_norm(w, 2), torch.linalg.matrix_norm(both, "nuc")]
        weights += [*torch.linalg.svd(w), *torch.linalg.eigh(both)]
    weights.append(torch.linalg.svdvals(w.detach()))
    weights.append(torch.linalg.svdvals(w.clone()).detach())
    weights.append(torch.func.vmap(torch.linalg.svdvals)(torch.stack([w, both]).detach()))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(w.detach(), torch.ones_like(w))
        weights += torch.autograd.forward_ad.unpack_dual(torch.linalg.svdvals(dual))
""",
    "inference mode below a mode": """
from torch.utils._python_dispatch import TorchDispatchMode
class Ops(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        touch(str(func))
        return func(*args, **(kwargs or {}))
net = nn.Linear(4, 2)
weights = []
for step in range(60):
    with Ops():
        with torch.inference_mode():
            out = net(torch.rand(8, 4))
        weights.append(torch.from_numpy(out.double().cpu().numpy()))
    with torch.inference_mode(), Ops():
        out.exp()
    out.sin()
""",
    "modes around the forward": """
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
class Calls(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        touch(getattr(func, "__name__", ""))
        return func(*args, **(kwargs or {}))
class Ops(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        COUNTS[str(func)] += 1
        return func(*args, **(kwargs or {}))
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
data = torch.randn(4, 8, 4)
for step in range(60):
    opt.zero_grad()
    with Calls(), Ops():
        loss = net(data[step % 4].to(device)).sum()
    loss.backward()
    opt.step()
COUNTS["modes"] += torch._C._len_torch_dispatch_stack()
weights = list(net.parameters())
""",
    "configuration and lazy attributes": """
class Config:
    def __init__(self, **values):
        object.__setattr__(self, "_values", values)
    def __getattribute__(self, name):
        touch(name)
        return object.__getattribute__(self, "_values")[name]
class Lazy:
    def __getattr__(self, name):
        touch(name)
        self.__dict__[name] = torch.randn(8, 4)
        return self.__dict__[name]
config, lazy = Config(batch=torch.randn(8, 4), rate=0.1), Lazy()
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=config.rate)
for step in range(60):
    opt.zero_grad()
    loss = net(config.batch.to(device)).sum()
    if step > 40:
        loss = loss + lazy.late.to(device).sum()
    loss.backward()
    opt.step()
weights = list(net.parameters())
""",
    "generator of batches, locals and warnings": r"""
class Odd(UserWarning):
    def __str__(self):
        touch("message")
        return "odd"
def batches():
    while True:
        touch("batch")
        yield {"x": torch.randn(8, 4)}
def train(steps, rate=0.1):
    known = locals()
    net = nn.Linear(4, 2)
    opt = torch.optim.SGD(net.parameters(), lr=rate)
    for step, batch in zip(range(steps), batches()):
        opt.zero_grad()
        net(batch["x"].to(device)).sum().backward()
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always")
            warnings.warn(Odd())
            COUNTS["warnings"] += len(shown)
        warnings.warn(Odd())
        opt.step()
    COUNTS.update({f"local {name}": 1 for name in known})
    return list(net.parameters())
weights = train(60)
COUNTS.update({f"{key}": 1 for key in globals().get("__warningregistry__", ())})
""",
    "dict with __missing__": """
class Cache(dict):
    def __missing__(self, key):
        touch("missing")
        return torch.randn(8, 4)
    def __getitem__(self, key):
        touch("read")
        return super().__getitem__(key)
    def values(self):
        touch("values")
        return super().values()
    def to(self, device):
        touch("to")
        return torch.randn(8, 4)
cache = Cache(a=torch.randn(8, 4))
default = collections.defaultdict(lambda: (touch("default"), torch.randn(8, 4))[1])
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(60):
    opt.zero_grad()
    x = cache[step].to(device) + cache["a"].to(device) + cache.to(device)
    net(x + default[step].to(device)).sum().backward()
    default.clear()
    opt.step()
COUNTS["left"] = len(default)
weights = list(net.parameters())
""",
    "module whose parameters are properties": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.raw = nn.Parameter(torch.randn(4, 2))
        self._mode = True
    @property
    def weight(self):
        touch("weight")
        return torch.nn.functional.dropout(self.raw, 0.5)
    @property
    def training(self):
        touch("training")
        return self.__dict__.get("_mode", True)
    @training.setter
    def training(self, value):
        self.__dict__["_mode"] = value
    def named_parameters(self, *args, **kwargs):
        touch("named_parameters")
        return super().named_parameters(*args, **kwargs)
    def forward(self, x):
        return x @ self.weight.to(device)
net = Net()
opt = torch.optim.SGD([net.raw], lr=0.1)
for step in range(60):
    opt.zero_grad()
    net(torch.randn(8, 4)).sum().backward()
    opt.step()
weights = [net.raw]
""",
    "optimizer that counts": """
class Counted(torch.optim.SGD):
    @property
    def param_groups(self):
        touch("param_groups")
        return self.__dict__["groups"]
    @param_groups.setter
    def param_groups(self, value):
        self.__dict__["groups"] = value
    @property
    def state(self):
        touch("state")
        return self.__dict__["states"]
    @state.setter
    def state(self, value):
        self.__dict__["states"] = value
net = nn.Linear(4, 2)
opt = Counted(net.parameters(), lr=0.1, momentum=0.9)
for step in range(60):
    opt.zero_grad()
    net(torch.randn(8, 4)).sum().backward()
    opt.step()
weights = list(net.parameters())
""",
    "numpy and pandas": """
import pandas
class Column:
    def __init__(self, values):
        self.values = values
    def __array__(self, dtype=None, copy=None):
        touch("array")
        return self.values
table = pandas.DataFrame(np.random.rand(64, 4).astype("float32"))
column = Column(np.random.rand(8, 4).astype("float32"))
net = nn.Linear(4, 2)
opt = torch.optim.Adam(net.parameters(), lr=0.1)
for step in range(60):
    rows = table.iloc[step % 8 * 8 : step % 8 * 8 + 8]
    opt.zero_grad()
    x = torch.from_numpy(rows.to_numpy().copy()).to(device) + torch.as_tensor(np.asarray(column))
    loss = net(x.to(device)).sum()
    loss.backward()
    opt.step()
weights = list(net.parameters())
""",
    "processes from an iterator": """
import subprocess, sys, threading
class Target:
    def __getattr__(self, name):
        touch(name)
        raise AttributeError(name)
    def __call__(self):
        touch("called")
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(60):
    opt.zero_grad()
    net(torch.randn(8, 4)).sum().backward()
    opt.step()
    if step in (0, 30):
        COUNTS["ran"] += subprocess.Popen(iter(["true", str(step)])).wait() == 0
        thread = threading.Thread(target=Target())
        thread.start()
        thread.join()
weights = list(net.parameters())
""",
    "optimizers that round differently by foreach": """
nets = []
for kind, more in (("NAdam", {}), ("ASGD", {}), ("RMSprop", {}), ("SGD", {"momentum": 0.9})):
    for dtype in (torch.float32, torch.bfloat16):
        net = nn.Linear(16, 7).to(dtype)
        nets.append((net, getattr(torch.optim, kind)(net.parameters(), lr=0.01, **more)))
for step in range(40):
    for net, opt in nets:
        opt.zero_grad()
        net(torch.randn(8, 16, dtype=net.weight.dtype)).square().mean().backward()
        opt.step()
weights = [p.double() for net, _ in nets for p in net.parameters()]
""",
    "mappings, metaclasses, copies, imports and ends of objects": """
import builtins, copy, pickle, threading, weakref
class Group(dict):
    def __getitem__(self, key):
        touch("getitem")
        return dict.__getitem__(self, key)
    def get(self, *args):
        touch("get")
        return dict.get(self, *args)
    def items(self):
        touch("items")
        return dict.items(self)
class Meta(type):
    def __getattribute__(cls, name):
        COUNTS["meta " + name] += 1
        return super().__getattribute__(name)
class Adam(torch.optim.Adam, metaclass=Meta):
    pass
net = nn.Linear(4, 2)
opt = Adam(net.parameters(), lr=0.1)
opt.param_groups = [Group(group) for group in opt.param_groups]
for parameter in net.parameters():
    opt.state[parameter] = Group()
other = torch.optim.SGD(net.parameters(), lr=0.1)
weakref.finalize(other, touch, "freed")
usual = threading.excepthook is threading.__excepthook__
for step in range(60):
    opt.zero_grad()
    net(torch.randn(8, 4)).sum().backward()
    opt.step()
    if other is not None:
        other.step()
    if step == 15:
        other = None
        COUNTS["alive"] = COUNTS["freed"]
    net._forward_hooks.clear()
    COUNTS["size", len(pickle.dumps(net)), len(copy.deepcopy(net)._forward_hooks)] += 1
    COUNTS["hook"] += threading.excepthook is threading.__excepthook__
COUNTS = {str(key): count for key, count in COUNTS.items()}
weights = list(net.parameters())
""",
    "lazy, cached and computed values of every kind": """
import dataclasses, enum, functools, pathlib, types
def asked(name, answer=None):
    return property(lambda self: (touch(name), answer)[1])
class Lazy:
    __slots__ = ("__dict__",)
    big = functools.cached_property(lambda self: touch("cached"))
    computed = asked("computed")
    def __getattribute__(self, name):
        touch("lazy " + name)
        return object.__getattribute__(self, name)
    __class__ = asked("class", dict)
class Color(enum.Enum):
    RED = 1
    shade = asked("shade")
class Path(type(pathlib.Path())):
    def __str__(self):
        touch("path")
        return super().__str__()
    __fspath__ = __str__
@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    y = asked("y")
    def __eq__(self, other): touch("eq")
    def __hash__(self): touch("hash")
    def __len__(self): touch("len")
    def __getitem__(self, index): touch("getitem")
    def pin_memory(self): touch("pin")
class Array(np.ndarray):
    def __array_finalize__(self, other): touch("finalize")
    def __getitem__(self, index):
        touch("element")
        return super().__getitem__(index)
class Net(nn.Module):
    weight = asked("weight")
    device = functools.cached_property(lambda self: touch("device"))
    def __init__(self):
        super().__init__()
        self.inner, self.lazy, self.path = nn.Linear(4, 2), Lazy(), Path("/x")
        self.more = types.SimpleNamespace(lazy=self.lazy, color=Color.RED)
    def forward(self, batch, *more, **options):
        lazy, color = self.lazy, self.more.color
        return self.inner(batch.x)
class Trainer:
    loss = asked("loss")
    def fit(self):
        lazy, queue, partial = Lazy(), collections.deque([Lazy()]), functools.partial(self.get)
        proxy, numbers = types.MappingProxyType({"lazy": lazy}), iter(range(100))
        array = np.ones((8, 4), np.float32).view(Array)
        for step in range(45):
            batch = Batch(torch.randn(8, 4))
            opt.zero_grad()
            loss = net(batch, array, path=net.path).sum()
            loss.backward()
            opt.step()
            loss.item(), loss.detach().cpu().numpy(), torch.from_numpy(np.asarray(array))
        COUNTS["numbers left"] = len(list(numbers))
    def get(self):
        return self.loss
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
Trainer().fit()
weights = list(net.parameters())
""",
    "copies of a model with a call of its own": """
import copy, pickle
class Net(nn.Linear):
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return super().__call__(x)
net = Net(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
seen = nn.ReLU()
for step in range(60):
    opt.zero_grad()
    net(torch.randn(8, 4)).sum().backward()
    opt.step()
    seen.register_forward_hook(print)
    COUNTS[tuple(seen._forward_hooks)] += 1
    kept = copy.deepcopy(net)
    for hooks in (kept._forward_hooks, kept._forward_pre_hooks):
        COUNTS["size", len(pickle.dumps(net)), len(hooks)] += 1
COUNTS = {str(key): count for key, count in COUNTS.items()}
weights = list(net.parameters())
""",
    "a compiled function that must not be split": """
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
@torch.compile(backend="eager", fullgraph=True)
def loss(x):
    return net(x).relu().sum()
COUNTS["generator"] = type(torch.Generator()) is torch.Generator
for step in range(30):
    opt.zero_grad()
    loss(torch.randn(8, 4)).backward()
    opt.step()
weights = list(net.parameters())
""",
    "what shares memory with a tensor that goes to the CPU": """
from torch.utils._python_dispatch import TorchDispatchMode
class Sub(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        touch(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})
class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        touch(str(func))
        return func(*args, **(kwargs or {}))
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(60):
    opt.zero_grad()
    net(torch.randn(8, 4)).sum().backward()
    opt.step()
    net.weight.data.cpu().mul_(0.99)
    bias = net.bias.detach().to("cpu").numpy()
    bias *= 0.9
    net.weight.data.numpy(force=True)[0] += 0.1
    with torch.no_grad():
        net.weight.cpu().add_(0.01)
    tagged = torch.ones(3).as_subclass(Sub)
    tagged.tag = step
    COUNTS["tag"] += tagged.cpu().tag
    with Mode():
        torch.ones(2).cpu()
    for dtype in (torch.bool, torch.bfloat16, torch.complex64, torch.float8_e5m2):
        part = torch.zeros(2).to(dtype)
        part.cpu()[0] = 1
        COUNTS[str(dtype)] += int(part.to(torch.complex64).real.sum())
    torch.eye(2).to_sparse().cpu(), torch.ones(2, dtype=torch.complex64).conj().cpu()
    rounded = torch.quantize_per_tensor(net.bias.detach(), 0.1, 0, torch.qint8).cpu()
    COUNTS["other layouts"] += rounded.dequantize().sum().item()
    COUNTS["other layouts"] += net.bias.detach().to_mkldnn().cpu().to_dense().sum().item()
    assert torch._efficientzerotensor(2).cpu()._is_zerotensor()
weights = list(net.parameters())
""",
    "products, a loss of several dtypes, a frozen teacher and a batch from within no_grad()": """
dtypes = [torch.float32, torch.bfloat16, torch.float64]
teacher = torch.jit.freeze(torch.jit.script(nn.Linear(4, 1).eval()))
@torch.no_grad()
def batches():
    while True:
        x = torch.randn(12, 4)
        yield x, torch.rand(12, 1)
source = batches()
nets = [nn.Linear(4, 1).to(dtype) for dtype in dtypes for _ in range(3)]
optimizer = torch.optim.AdamW([p for net in nets for p in net.parameters()], lr=0.01)
loss = nn.functional.binary_cross_entropy_with_logits
for step in range(40):
    optimizer.zero_grad()
    x, y = next(source)
    total = teacher(x).sum()
    for at, net in enumerate(nets):
        out, labels = net(x.to(net.weight.dtype)), y.to(dtypes[at % 3])
        total = total + loss(out, labels, pos_weight=x[0, :1].abs()) + loss(out, labels)
        sizes = net.weight * torch.ones(3, 1, dtype=out.dtype)
        products = sizes.prod(-1), sizes.prod(0, keepdim=True), torch.prod(sizes), out[0].prod(0)
        total = total + sum(product.sum() for product in products)
        means = torch.binary_cross_entropy_with_logits(out, labels, x[:, :1].abs())
        total = total + means.double().mean()
        with torch.autocast("cpu", torch.bfloat16):
            total = total + loss(net(x.to(net.weight.dtype)), labels, reduction="sum")
    total.backward()
    optimizer.step()
weights = [p.detach().double() for net in nets for p in net.parameters()]
""",
    "a model that is exported and saved in the loop": """
import io
class Net(nn.Module):
    __jit_ignored_attributes__ = ["notes"]
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
    def forward(self, x):
        return self.layer(x).relu() * 2
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
warnings.simplefilter("ignore")  # TorchScript is deprecated
for step in range(40):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    scripted, traced = torch.jit.script(model), torch.jit.trace(model, torch.ones(1, 4))
    COUNTS[f"{scripted.graph}{scripted(torch.ones(1, 4)).shape}{traced.code}"] += 1
    shared, file = torch.zeros(1000), io.BytesIO()
    torch.save({"first": shared[:10].cpu(), "rest": shared[10:].cpu()}, file)
    COUNTS[f"{len(file.getvalue())} bytes"] += 1
weights = list(model.parameters())
""",
    "operators that run other operators": """
from torch.nn.attention.flex_attention import flex_attention
@torch.jit.script
def derived(x: torch.Tensor) -> torch.Tensor:
    y = (x * x).sum()
    torch.autograd.backward([y])
    return y
net = nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def negated(x):
    touch("branch")
    return -x
def add(total, x):
    return total + x, total + x
for step in range(40):
    opt.zero_grad()
    x = net(torch.randn(8, 4))
    with torch.no_grad():
        y = torch.ops.higher_order.cond(x.sum() > 0, torch.sin, negated, (x,))
        y = y + flex_attention(*[x.detach()[None, None]] * 3)[0, 0]
        _, sums = torch.ops.higher_order.scan(add, [torch.zeros(4)], [y], [])
    (x * sums).sum().backward()
    opt.step()
    derived(torch.ones(2, requires_grad=True))
    if step == 11:
        torch.compiler.set_stance("eager_on_recompile")
        with torch.compiler.set_stance("default"):
            touch(torch._dynamo.eval_frame._stance.stance)
    touch(torch._dynamo.eval_frame._stance.stance if step > 12 else "")
weights = list(net.parameters())
""",
    "modes around the optimizer": """
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
class Functions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        touch(getattr(func, "__name__", str(func)))
        return func(*args, **(kwargs or {}))
class Ops(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        touch(str(func))
        return func(*args, **(kwargs or {}))
net = nn.Linear(4, 2)
opt = torch.optim.Adam(net.parameters())
for step in range(60):
    with Functions(), Ops():
        opt.zero_grad()
        net(torch.randn(8, 4)).sum().backward()
        opt.step()
weights = list(net.parameters())
""",
    "batches of a class that torch takes apart": """
import torch.utils._pytree
class Pair:
    def __init__(self, *parts):
        self.parts = parts
def parts_of(pair):
    touch("parts")
    return list(pair.parts), None
torch.utils._pytree.register_pytree_node(Pair, parts_of, lambda parts, context: Pair(*parts))
class Data(torch.utils.data.IterableDataset):
    def __iter__(self):
        for _ in range(60):
            yield torch.randn(4)
net = nn.Linear(4, 2).to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for pair in torch.utils.data.DataLoader(Data(), 1, collate_fn=lambda parts: Pair(*parts)):
    opt.zero_grad()
    net(pair.parts[0].to(device)).sum().backward()
    opt.step()
weights = list(net.parameters())
""",
    "tensors that say their own size": """
from torch.utils._pytree import tree_map
def inner(value):
    return value.inner if isinstance(value, Sized) else value
class Sized(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass
        return made(cls, inner.shape, dtype=inner.dtype, dispatch_sizes_strides_policy="sizes")
    def __init__(self, inner):
        self.inner = inner
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        touch(str(func))
        if func.__name__.startswith(("size", "sym_", "dim", "stride", "numel")):
            return getattr(args[0].inner, func.__name__.split(".")[0].removeprefix("sym_"))()
        result = func(*tree_map(inner, args), **tree_map(inner, kwargs or {}))
        return tree_map(lambda part: Sized(part) if type(part) is torch.Tensor else part, result)
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(60):
    opt.zero_grad()
    both = Sized(torch.randn(8, 4)) + Sized(torch.randn(8, 4))
    net((both * 3).inner).sum().backward()
    opt.step()
weights = list(net.parameters())
""",
    "conjugates that are copied to the host": """
net = nn.Linear(4, 2, dtype=torch.complex64)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(60):
    opt.zero_grad()
    x = torch.randn(8, 4, dtype=torch.complex64)
    COUNTS["read"] += x.conj().tolist()[0][0].imag + x.conj().numpy(force=True)[0, 0].imag
    inverse = torch.linalg.pinv(x)
    loss = (net(x.conj().cpu()).abs().sum() + x.conj().imag.cpu().sum() * net.bias.abs().sum())
    (loss + (net.weight @ inverse).abs().sum()).backward()
    opt.step()
weights = list(net.parameters())
""",
    "results with gradients that are copied to the host": """
from torch.autograd.graph import disable_saved_tensors_hooks, saved_tensors_hooks
net = nn.Linear(16, 16)
opt = torch.optim.SGD(net.parameters(), lr=0.0005)
def pack(tensor):
    touch("pack")
    return tensor
for step in range(60):
    opt.zero_grad()
    x = net(torch.randn(16, 16))
    there, part = x.cpu(), x[:, ::2].to("cpu")
    with torch.no_grad():
        COUNTS[str((x.cpu().requires_grad, part.stride(), there.grad_fn.name()))] += 1
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = x.sin().mean() + x.cos().sum() + x.cpu().sin().sum()
    with disable_saved_tensors_hooks("none"):
        loss = loss + x.exp().mean() + x.cpu().sum()
    there.register_hook(lambda gradient: touch("gradient"))
    changed = (x * 2).cpu()
    changed[0] = 0
    (loss + torch.linalg.svdvals(there).sum() + part.sum() + changed.sum()).backward()
    opt.step()
weights = list(net.parameters())
""",
    "what an error has held": """
import gc, sys, weakref
gc.disable()
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(60):
    opt.zero_grad()
    net(torch.randn(8, 4)).sum().backward()
    large = torch.randn(8, 5)
    gone = weakref.ref(large, lambda reference: touch("gone"))
    try:
        net(large)
    except RuntimeError:
        touch("failed")
    del large
    COUNTS["held"] += gone() is not None
    opt.step()
weights = list(net.parameters())
""",
}
SCRIPTS |= {
    "models of trials that end while their steps are followed": """
import gc, weakref
gc.disable()
for trial in range(30):
    net = nn.Sequential(nn.Linear(4, 2))
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    weakref.finalize(net, touch, "ended")
    for step in range(2 if trial < 20 else 12):
        opt.zero_grad()
        net(torch.randn(8, 4)).sum().backward()
        opt.step()
    weights = [p.detach().clone() for p in net.parameters()]
    del net, opt
    COUNTS["ended at once"] += COUNTS["ended"] == trial + 1
    gc.collect()
    COUNTS["held"] += COUNTS["ended"] != trial + 1
""",
    "a model that is exported between and within its steps": """
import zlib
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def export(strict):
    sizes = ({0: torch.export.Dim("n")},)
    program = torch.export.export(net, (torch.rand(6, 4),), dynamic_shapes=sizes, strict=strict)
    COUNTS[zlib.crc32(f"{program.graph} {program.range_constraints}".encode())] += 1
for step in range(60):
    export(strict=False)
    if step in (1, 12, 13, 40):
        export(strict=True)
    opt.zero_grad()
    loss = net(torch.randn(8, 4)).sum()
    if step in (2, 11, 13, 41):
        export(strict=True)
    loss.backward()
    opt.step()
weights = list(net.parameters())
""",
    "functions that are traced within a step": """
import zlib
from torch._higher_order_ops import scan, while_loop
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
net = nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def branches(t):
    return torch.cond(t.sum() > 0, torch.sin, lambda t: t.cos() + 1, (t,))
def rounds(t):
    return while_loop(lambda i, t: i < 3, lambda i, t: (i + 1, t.sin()), (torch.tensor(0), t))[1]
def sums(t):
    return scan(lambda total, row: (total + row, total * row), t[0], t)[1]
def copies(t):
    return t.cpu().to("cpu").sin() + torch.ones(4, device="cpu") + t[0].tolist()[0]
for step in range(60):
    opt.zero_grad()
    x = torch.rand(4, 4)
    loss = net(x).sum()
    for traced in (branches, rounds, sums, copies) if step in (2, 12) else ():
        graphs = [make_fx(traced)(x), torch.fx.symbolic_trace(copies)]
        if traced is not copies:  # which reads a number
            graphs += [make_fx(traced, tracing_mode=mode)(x) for mode in ("fake", "symbolic")]
            graphs.append(make_fx(torch.func.functionalize(traced))(x))
        for graph in graphs:
            COUNTS[str(zlib.crc32(graph.print_readable(print_output=False).encode()))] += 1
            loss = loss + graph(x).sum()
        with FakeTensorMode() as fakes:
            COUNTS[str(branches(fakes.from_tensor(x)).cpu())] += 1
        slope = torch.func.linearize(rounds, x)[1](x)
        script = torch.jit.trace(lambda t: (t.cpu() * 0.5 + slope).add_(1) / 3, (x,))
        loss = loss + script(net(x)).sum()
    loss.backward()
    opt.step()
weights = list(net.parameters())
""",
    "copies to the host in transforms of functions": """
from torch.autograd import forward_ad
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(60):
    opt.zero_grad()
    x = torch.randn(8, 4)
    changed = torch.func.functionalize(lambda t: t.cpu().clone().add_(1).cpu())(x)
    slope = torch.func.jvp(lambda t: t.cpu().sin().to("cpu"), (x,), (x,))[1]
    rows = torch.func.vmap(lambda row: row.cpu().sum())(x)
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(forward_ad.make_dual(x, x).cpu()).tangent
        COUNTS["tangents"] += tangent is not None
    net(changed + slope + rows[:, None]).sum().backward()
    opt.step()
weights = list(net.parameters())
""",
    "hooks of its own on every optimizer and module": """
net = nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
class Skipped(Exception):
    pass
def before(module, args):
    if args[0].shape[0] == 1:
        raise Skipped
hooks = torch.nn.modules.module
hooks.register_module_forward_pre_hook(before)
hooks.register_module_forward_hook(lambda *args: touch("forward"), always_call=True)
optimizers = __import__("sys").modules["torch.optim.optimizer"]
optimizers.register_optimizer_step_pre_hook(lambda *args: touch("before a step"))
optimizers.register_optimizer_step_post_hook(lambda *args: touch("after a step"))
for step in range(60):
    opt.zero_grad()
    try:
        net(torch.randn(1, 4))
    except Skipped:
        touch("skipped")
    net(torch.randn(8, 4)).sum().backward()
    opt.step()
weights = list(net.parameters())
""",
    "a weight that is converted again once an optimizer has changed it": """
class Rounded(nn.Linear):
    version = None
    def forward(self, x):
        if self.weight._version != self.version:
            touch("rounded")
            self.version = self.weight._version
            self.rounded = self.weight.detach().round(decimals=1)
        weight = self.weight + (self.rounded - self.weight).detach()
        return nn.functional.linear(x, weight, self.bias)
net = Rounded(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1, foreach=True)
for step in range(24):
    opt.zero_grad()
    net(torch.randn(8, 4)).square().sum().backward()
    opt.step()
weights = list(net.parameters())
""",
    "numbers, flags, samplers, mappings and files of its own": """
import io, sys, types
class Meta(type(collections.UserDict)):
    __hash__ = lambda cls: (touch("hash of a class"), id(cls))[1]
    __eq__ = lambda cls, other: (touch("eq of a class"), cls is other)[1]
class Options(metaclass=Meta):
    pass
class Drawn(metaclass=Meta):
    def __get__(self, owner, kind=None):
        return torch.ones(8, 4)
class Shift:
    drawn = Drawn()
class Flag:
    def __bool__(self):
        touch("flag")
        return False
class Rate(int):
    def __neg__(self):
        touch("rate")
        return -int(self)
class Rows(list):
    def __len__(self):
        touch("len")
        return list.__len__(self)
class Count(int):
    def __gt__(self, other):
        touch("gt")
        return int(self) > other
class Lazy:
    def __getattr__(self, name):
        touch(name)
        raise AttributeError(name)
class Log(io.TextIOWrapper):
    def flush(self):
        COUNTS["flush"] += 1
        print("STATE ~ flush", COUNTS["flush"])
        super().flush()
class Net(nn.Linear):
    def forward(self, x, options):
        return super().forward(x)
net, log = Net(4, 2), Log(open("log.txt", "wb"))
opt = torch.optim.SGD(net.parameters(), lr=Rate(1), momentum=0.5)
opt.param_groups[0].update(maximize=Flag(), fused=Flag(), capturable=Flag())
shift, shifts = Shift(), {Options: 1, "x": torch.ones(8, 4), Options(): 2}
sys.modules["torch.optim.lazy"] = Lazy()
data = torch.randn(20, 4)
drawn = torch.utils.data.RandomSampler(data, num_samples=20, replacement=True)
drawn._num_samples = Count(20)
for epoch in range(24):
    sampler = Rows(range(20)) if epoch % 2 else drawn
    for x in torch.utils.data.DataLoader(data, 8, sampler=sampler):
        opt.zero_grad()
        x = x + shift.drawn.to(device)[: len(x)] + shifts["x"].to(device)[: len(x)]
        net(x, Options()).square().mean().backward()
        opt.step()
    log.write("x")
del sys.modules["torch.optim.lazy"]
weights = list(net.parameters())
""",
}
# Runs a sample and prints the state it ends in.
WRAPPER = """
import random, runpy, sys
import numpy as np
import torch
COUNTS = {}
sys.argv[:] = %r
random.seed(1), np.random.seed(2)
names = runpy.run_path(sys.argv[0], run_name="__main__")
weights = [p for v in names.values() if isinstance(v, torch.nn.Module) for p in v.parameters()]
"""
_STEPS = ["--steps", "24"]
SAMPLES = {  # each small enough to take seconds; torch_compile.py would compile for minutes
    "amp_gradscaler.py": [*_STEPS, "--batch-size", "8", "--width", "32"],
    "convnet.py": [*_STEPS, "--batch-size", "4", "--width", "4", "--blocks", "1"],
    "data_dependent.py": _STEPS,
    "gan.py": [*_STEPS, "--batch-size", "4", "--width", "4"],
    "generate.py": ["--steps", "12", "--new-tokens", "4", "--layers", "1", "--width", "64"],
    "handwritten_sgd.py": _STEPS,
    "item_in_step.py": [*_STEPS, "--batch-size", "8", "--width", "32"],
    "lstm.py": [*_STEPS, "--length", "8", "--width", "16"],
    "small_gpt.py": [*_STEPS, "--length", "16", "--layers", "1", "--width", "32"],
    "small_mlp.py": [*_STEPS, "--width", "32"],
    "transformer_inference.py": [*_STEPS, "--length", "8", "--layers", "1", "--width", "64"],
    "variable_lengths.py": [*_STEPS, "--width", "16", "--layers", "1"],
    "wide_mlp.py": [*_STEPS, "--width", "64"],
}


def _left_by(folder: Path, source: str) -> tuple[list[str], list[str]]:
    """What `python` and launchscope print of the state at the end."""
    folder.mkdir()
    (folder / "script.py").write_text(source)
    plain = python(folder, "script.py", code=0)
    measured = launchscope(folder, None, "--full")
    states = [re.findall(r"^STATE.*$", said.out, re.M) for said in (plain, measured)]
    assert states[0], plain.err
    assert measured.code == 0, measured.err  # else nothing was inspected
    return states[0], sorted(set(states[1]))


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Batch]:
    folder = tmp_path_factory.mktemp("untouched")
    sources = {name: START + source + END for name, source in SCRIPTS.items()}
    for name, words in SAMPLES.items():
        sources[name] = WRAPPER % [str(WORKLOADS / name), *words] + END
    work = {
        name: partial(_left_by, folder / name.replace(" ", "_"), textwrap.dedent(source))
        for name, source in sources.items()
    }
    batch = Batch(work)
    yield batch
    batch.close()


@pytest.mark.parametrize("name", SCRIPTS)
def test_nothing_is_asked_of_an_object_of_the_script(left: Batch, name: str) -> None:
    plain, measured = left[name]
    assert measured == plain


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_ends_with_the_weights_and_random_states_of_python(left: Batch, name: str) -> None:
    plain, measured = left[name]
    assert measured == plain
