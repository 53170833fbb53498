"""Odd steps, each a script behind HEAD. They name a `cuda` device, which a rehearsal maps to the
CPU, so that the same script has a golden with and without a GPU."""

from __future__ import annotations

HEAD = """
import copy, torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
DEVICE, STEPS = "cuda", range(60)
def optimizer_of(*modules, kind=torch.optim.SGD, lr=0.01):
    return kind([p for module in modules for p in module.parameters()], lr=lr)
def train(loss_of, optimizer):
    for i in STEPS:
        optimizer.zero_grad()
        loss = loss_of(i)
        loss.backward()
        optimizer.step()
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(DEVICE)
optimizer = optimizer_of(net)
x, y = torch.randn(6, 8, device=DEVICE), torch.randn(6, 4, device=DEVICE)
"""

CASES: dict[str, str] = {
    # devices and batches
    "names_no_device": """
net, x = net.cpu(), x.cpu()
optimizer = optimizer_of(net, kind=torch.optim.Adam)
train(lambda i: net(x).square().mean(), optimizer)
""",
    "default_device": """
torch.set_default_device(DEVICE)
net = nn.Linear(8, 4)
train(lambda i: net(torch.randn(6, 8)).square().mean(), optimizer_of(net))
""",
    "loader_with_workers": """
from torch.utils.data import DataLoader, TensorDataset
if __name__ == "__main__":
    data = TensorDataset(torch.randn(130, 8), torch.randn(130, 4))
    for epoch in range(9):
        for a, b in DataLoader(data, 16, num_workers=2):
            a, b = a.to(DEVICE, non_blocking=True), b.to(DEVICE)
            loss = F.mse_loss(net(a), b)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
""",
    "tensors_from_lists": """
def loss_of(i):
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0], device=DEVICE)
    return (net(x) * weight * torch.tensor(0.5).to(DEVICE)).sum()
train(loss_of, optimizer)
""",
    "varying_shapes": """
train(lambda i: net(torch.randn(4 + i % 3, 8, device=DEVICE)).square().mean(), optimizer)
""",
    # optimizers
    "adamw_with_schedule": """
optimizer = optimizer_of(net, kind=torch.optim.AdamW)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
for i in STEPS:
    optimizer.zero_grad()
    F.mse_loss(net(x), y).backward()
    optimizer.step()
    scheduler.step()
""",
    "many_optimizers": """
kinds = ("Adadelta", "Adafactor", "Adagrad", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")
optimizers = [getattr(torch.optim, kind)(net.parameters(), lr=0.001) for kind in kinds]
for i in STEPS:
    net.zero_grad()
    F.mse_loss(net(x), y).backward()
    for optimizer in optimizers:
        optimizer.step()
""",
    "optimizer_flags": """
pairs = [{"foreach": False}, {"amsgrad": True, "maximize": True}, {"fused": True}]
optimizers = [torch.optim.Adam(net.parameters(), **flags) for flags in pairs]
momentum = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9, nesterov=True, weight_decay=0.1)
for i in STEPS:
    net.zero_grad()
    F.mse_loss(net(x), y).backward()
    for optimizer in (*optimizers, momentum):
        optimizer.step()
""",
    "lbfgs": """
optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)
def closure():
    optimizer.zero_grad()
    loss = F.mse_loss(net(x), y)
    loss.backward()
    return loss
for i in STEPS:
    optimizer.step(closure)
""",
    "accumulation": """
for i in STEPS:
    for part in x.chunk(3):
        (net(part).square().mean() / 3).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
""",
    "clip_grad_norm": """
for i in STEPS:
    optimizer.zero_grad()
    F.mse_loss(net(x), y).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
""",
    "ema": """
average = copy.deepcopy(net)
for i in STEPS:
    optimizer.zero_grad()
    F.mse_loss(net(x), y).backward()
    optimizer.step()
    with torch.no_grad():
        for kept, new in zip(average.parameters(), net.parameters()):
            kept.mul_(0.9).add_(new, alpha=0.1)
""",
    # mixed precision
    "autocast": """
def loss_of(i):
    with torch.autocast(DEVICE, torch.bfloat16):
        return net(x).float().square().mean()
train(loss_of, optimizer)
""",
    "grad_scaler": """
scaler = torch.amp.GradScaler(DEVICE)
for i in STEPS:
    optimizer.zero_grad()
    with torch.autocast(DEVICE, torch.float16):
        loss = F.mse_loss(net(x).float(), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
""",
    # reads and syncs
    "item_and_print": """
for i in STEPS:
    optimizer.zero_grad()
    loss = F.mse_loss(net(x), y)
    if loss.item() > 1e9:
        break
    loss.backward()
    optimizer.step()
    print(loss)
""",
    "logs_every_third": """
for i in STEPS:
    optimizer.zero_grad()
    loss = F.mse_loss(net(x), y)
    loss.backward()
    optimizer.step()
    if i % 3 == 0:
        print(float(loss), net(x).argmax(1).tolist())
""",
    "masks": """
def loss_of(i):
    out = net(x)
    rows = (out > 0).nonzero()
    out = torch.where(out.isnan(), 0.0, out)
    return out[out > 0].sum() + out[rows[:, 0]].mean() + out.masked_fill(out < 0, 0.0).sum()
train(loss_of, optimizer)
""",
    "synchronizes": """
def loss_of(i):
    out = net(x)
    torch.cuda.synchronize()
    return out.cpu().to(DEVICE).sum() + out.unique().numel()
train(loss_of, optimizer)
""",
    "changing_number": """
train(lambda i: (net(x) * (0.9**i)).sum() + 1.0 / (i + 1), optimizer)
""",
    "blocked_in_a_library": """
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
rnn = nn.GRU(8, 4).to(DEVICE)
lengths, seen = torch.tensor([5, 4, 2]), torch.randn(5, 3, 8, device=DEVICE)
def loss_of(i):
    packed, _ = rnn(pack_padded_sequence(seen, lengths))
    return pad_packed_sequence(packed)[0].square().mean()
train(loss_of, optimizer_of(rnn))
""",
    # modules
    "recurrent": """
rnn, cell = nn.LSTM(8, 8, 2, batch_first=True).to(DEVICE), nn.GRUCell(8, 8).to(DEVICE)
seen = torch.randn(3, 5, 8, device=DEVICE)
train(lambda i: cell(rnn(seen)[0][:, -1]).square().mean(), optimizer_of(rnn, cell))
""",
    "transformer_eval": """
layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
encoder = nn.TransformerEncoder(layer, 2).to(DEVICE).eval()
seen, padding = torch.randn(3, 5, 8, device=DEVICE), torch.zeros(3, 5, dtype=bool, device=DEVICE)
with torch.no_grad():
    for i in STEPS:
        encoder(seen, src_key_padding_mask=padding)
""",
    "attention": """
attention = nn.MultiheadAttention(8, 2, batch_first=True).to(DEVICE)
seen, mask = torch.randn(3, 5, 8, device=DEVICE), torch.ones(5, 5, device=DEVICE).triu(1).bool()
def loss_of(i):
    out, weights = attention(seen, seen, seen, attn_mask=mask)
    causal = F.scaled_dot_product_attention(out, out, out, is_causal=True)
    return causal.square().mean() + weights.sum()
train(loss_of, optimizer_of(attention))
""",
    "embeddings": """
words = nn.Embedding(20, 8, sparse=True).to(DEVICE)
bag = nn.EmbeddingBag(20, 8, mode="sum").to(DEVICE)
tokens = torch.arange(6, device=DEVICE)
train(lambda i: net(words(tokens) + bag(tokens[None])).square().mean(), optimizer_of(words, bag))
""",
    "weight_norm": """
old, new = nn.utils.weight_norm(nn.Linear(8, 8)), nn.Linear(8, 8)
new = nn.utils.parametrizations.spectral_norm(nn.utils.parametrizations.weight_norm(new))
model = nn.Sequential(old, new).to(DEVICE)
train(lambda i: model(x).square().mean(), optimizer_of(model))
""",
    # autograd
    "checkpoint": """
from torch.utils.checkpoint import checkpoint
train(lambda i: checkpoint(net, x, use_reentrant=False).sum(), optimizer)
""",
    "reentrant_checkpoint": """
from torch.utils.checkpoint import checkpoint
x.requires_grad_()
train(lambda i: checkpoint(net, x, use_reentrant=True).sum(), optimizer)
""",
    "custom_function": """
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a * a
    @staticmethod
    def backward(ctx, grad):
        (a,) = ctx.saved_tensors
        return 2 * a * grad
train(lambda i: Square.apply(net(x)).mean(), optimizer)
""",
    "gradient_penalty": """
points = x.clone().requires_grad_()
def loss_of(i):
    (slope,) = torch.autograd.grad(net(points).sum(), points, create_graph=True)
    return slope.square().mean()
train(loss_of, optimizer)
""",
    "hooks": """
net[0].register_forward_hook(lambda module, args, out: out * 1.5)
net[0].weight.register_hook(lambda grad: grad.clamp(-1, 1))
net[2].register_full_backward_hook(lambda module, grad_in, grad_out: None)
train(lambda i: net(x).square().mean(), optimizer)
""",
    "functorch": """
from torch.func import functional_call, grad, vmap
def loss_of(parameters, one, aim):
    return F.mse_loss(functional_call(net, parameters, (one[None],)), aim[None])
for i in STEPS:
    optimizer.zero_grad()
    each = vmap(grad(loss_of), in_dims=(None, 0, 0))(dict(net.named_parameters()), x, y)
    for name, parameter in net.named_parameters():
        parameter.grad = each[name].mean(0)
    optimizer.step()
""",
    "vmap": """
def loss_of(i):
    return torch.vmap(lambda one: net(one).square().sum())(x).mean()
train(loss_of, optimizer)
""",
    # kinds of tensors
    "complex": """
signal = torch.randn(6, 8, dtype=torch.complex64, device=DEVICE)
scale = nn.Parameter(torch.randn(8, dtype=torch.complex64, device=DEVICE))
def loss_of(i):
    return torch.fft.ifft(torch.fft.fft(signal) * scale).abs().square().mean()
train(loss_of, torch.optim.Adam([scale], lr=0.01))
""",
    "tensor_subclass": """
class Named(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})
named = x.as_subclass(Named)
train(lambda i: net(named).square().mean().as_subclass(torch.Tensor), optimizer)
""",
    "wrapper_subclass": """
class Wrapped(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        of = {"dtype": inner.dtype, "device": inner.device}
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, **of)
    def __init__(self, inner):
        self.inner = inner
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args = [a.inner if isinstance(a, cls) else a for a in args]
        return func(*args, **(kwargs or {}))
with torch.no_grad():
    for i in STEPS:
        net(Wrapped(x))
""",
    # inference
    "inference_mode": """
for i in STEPS:
    with torch.inference_mode():
        net(x).softmax(1).argmax(1)
""",
    "kinds_of_steps": """
for i in STEPS:
    with torch.no_grad():
        out = net(x)
        for token in range(4):
            out = net(x[:1])
""",
    # compiled, and marked
    "compiled_step": """
@torch.compile(backend="aot_eager")
def loss_of(a):
    return net(a).square().mean()
train(lambda i: loss_of(x), optimizer)
""",
    "graph_break": """
@torch.compile(backend="eager")
def loss_of(a):
    out = net(a)
    if out.sum() > 0:
        out = out * 2
    return out.square().mean()
train(lambda i: loss_of(x), optimizer)
""",
    "scripted": """
net = torch.jit.trace(net, x)
train(lambda i: net(x).square().mean(), optimizer)
""",
    "marked": """
import launchscope
for i in STEPS:
    batch = torch.randn(6, 8, device=DEVICE)
    with launchscope.step():
        optimizer.zero_grad()
        F.mse_loss(net(batch), y).backward()
        optimizer.step()
""",
}
