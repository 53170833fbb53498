"""Scripts of people who ask why a capture fails, and what a rehearsal has to answer.

A line that a finding has to name ends with its code; no other line may be named.
"""

from __future__ import annotations

_HEAD = """
import torch, torch.nn as nn, torch.nn.functional as F
net = nn.Linear(8, 8).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(4, 8, device="cuda"), torch.randn(4, 8, device="cuda")
"""
_LOOP = """
for i in range(60):
    opt.zero_grad(set_to_none=True)
    {loss}
    loss.backward()
    opt.step()
"""
_CAPTURE = """
stream = torch.cuda.Stream(); stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream):
    for _ in range(20):
        opt.zero_grad(set_to_none=True)
        criterion(net(x), y).backward()
        opt.step()
torch.cuda.current_stream().wait_stream(stream)
graph = torch.cuda.CUDAGraph()
opt.zero_grad(set_to_none=True)
with torch.cuda.graph(graph, capture_error_mode="thread_local"):
    loss = criterion(net(x), y)
    loss.backward()
    opt.step()
for i in range(100):
    x.copy_(torch.randn(4, 8))
    graph.replay()
"""


def train(loss: str, before: str = "") -> str:
    """A script that trains; `loss` may have several lines."""
    return _HEAD + before + _LOOP.format(loss=loss.replace("\n", "\n    "))


def captures(criterion: str) -> str:
    return _HEAD + criterion + _CAPTURE


_NORMALIZES = """
def criterion(out, y):
    scale = y.abs().sum().item()  # LS030
    return F.mse_loss(out, y) / scale
"""
_CLASS = (
    _HEAD
    + """
class Runner:
    graph: torch.cuda.CUDAGraph | None = None
    def __call__(self, batch):
        if self.graph is None:
            self.batch, noise = batch.clone(), torch.Generator(device="cuda:0")
            self.graph = torch.cuda.CUDAGraph()
            self.graph.register_generator_state(noise)
            self.graph.capture_begin(pool=torch.cuda.graph_pool_handle())
            assert torch.cuda.is_current_stream_capturing()
            out = net(self.batch) + torch.randn(4, 8, device="cuda", generator=noise)
            self.size = out.abs().max().tolist()  # LS030
            self.out = out / self.size
            self.graph.capture_end()
        self.batch.copy_(batch)
        self.graph.replay()
        return self.out
run = Runner()
with torch.no_grad():
    for i in range(60): run(torch.randn(4, 8, device="cuda"))
"""
)
_DDP = """
import os, torch.distributed as dist
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}
dist.init_process_group("nccl")
torch.cuda.set_device(0)
net = nn.parallel.DistributedDataParallel(net, device_ids=[0], output_device=0)
"""
_TABLE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.table = torch.tensor([1.0, 2.0, 3.0, 4.0])
        self.register_buffer("scale", torch.ones(8))
    def forward(self, x):
        rows = torch.arange(4).to(x.device)  # LS030
        h = self.linear(x) * self.scale.to(x.device)
        h = h * self.table.to(h.device)[:, None]  # LS030
        return h + rows[:, None]
net = Net().to(torch.device("cuda"))
"""
_SEQUENCES = """
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
net, lengths = nn.LSTM(8, 8, batch_first=True).cuda(), torch.tensor([9, 5, 2])
x = torch.randn(3, 9, 8, device="cuda")
"""
_PACKED = "h, _ = net(pack_padded_sequence(x, lengths, batch_first=True))\n"
_SCALED = """
scaler = torch.amp.GradScaler("cuda")
for i in range(60):
    with torch.autocast("cuda", torch.float16):
        loss = F.mse_loss(net(x), y)
    scaler.scale(loss).backward()
    {clip}
    scaler.step(opt)  # LS030
    scaler.update()
    opt.zero_grad()
"""
_FROM = "F.mse_loss(net(x), y)"

# The script, and what its report says.
REPORTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "a value is read in a captured block": (captures(_NORMALIZES), ("torch.cuda.graph",)),
    "the backward of a product": (
        train("loss = torch.prod(net(x), 1).sum()  # LS030"),
        ("ProdBackward1 stops a capture",),
    ),
    "DDP that looks for unused parameters": (
        train(f"loss = {_FROM}", _DDP.replace("[0],", "[0], find_unused_parameters=True,")).replace(
            "loss.backward()", "loss.backward()  # LS030"
        ),
        ("find_unused_parameters=True of DistributedDataParallel stops",),
    ),
    "a capture by hand in a class": (_CLASS, ("torch.cuda.graph",)),
    "a graphed module": (
        train(f"loss = {_FROM}", "net = torch.cuda.make_graphed_callables(net, (x,))\n"),
        ("make_graphed_callables at", "cache_enabled=False", "allows a capture"),
    ),
    "DDP over NCCL": (
        train(f"loss = {_FROM}", _DDP),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING=0", "11 steps", "allows a capture"),
    ),
    "classes are counted": (
        train(
            "h = net(x)\nhot = F.one_hot(c).sum()  # LS030\nloss = h.mean() * hot",
            "c = torch.arange(4).cuda()\n",
        ),
        (),
    ),
    "packed sequences": (
        train(
            _PACKED + "loss = h.data.mean()",
            _SEQUENCES,
        ),
        ("(11 device operations) allows a capture",),
    ),
    "constants that follow another tensor": (train(f"loss = {_FROM}", _TABLE), ("pageable",)),
    "an annealed weight": (
        train(f"beta = min(1.0, i / 100)\nloss = {_FROM} * beta  # LS035"),
        ("changes (from 0.1 to 0.11)", "LS035"),
    ),
    "a mean that is carried on": (
        train(
            "loss = (net(x) - kept).square().mean()  # LS033\nkept = kept * 0.9 + x.mean(0)",
            "kept = torch.zeros(8, device='cuda')\n",
        ),
        ("a replay goes on reading the first one",),
    ),
    "rows behind a mask": (
        train("h = net(x)\nloss = h[torch.rand(4, device='cuda') < 0.3].sum()  # LS030").replace(
            "loss.backward()", "loss.backward()  # LS030"
        ),
        ("boolean mask",),
    ),
    "a scaler": (_HEAD + _SCALED.format(clip="pass"), ("SGD with fused=True",)),
    "a scaler that clips": (
        _HEAD
        + _SCALED.format(
            clip="scaler.unscale_(opt)\n    nn.utils.clip_grad_norm_(net.parameters(), 1.0)"
        ),
        ("bf16 without a scaler",),
    ),
    "clipping that checks": (
        train(
            f"loss = {_FROM}\nloss.backward()\n"
            "nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)  # LS030\n"
            "loss = net(x).mean()"
        ),
        ("torch/nn/utils/clip_grad.py:",),
    ),
    "anomaly detection": (
        train(f"loss = {_FROM}", "torch.autograd.set_detect_anomaly(True)\n").replace(
            "loss.backward()", "loss.backward()  # LS030"
        ),
        ("set_detect_anomaly(False)",),
    ),
}
