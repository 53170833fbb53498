"""A training script, and the same script with one thing made worse: what a gate has to catch.

Each edit is the kind of line that slips into a pull request. `names` are what a report of the
change has to name without a GPU; `gpu_names` beside them parts of names that a GPU adds.
"""

from __future__ import annotations

from dataclasses import dataclass

SCRIPT = """
import torch
import torch.nn.functional as F
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        h = self.up(self.norm(x))
        h = F.gelu(h, approximate="tanh")
        return x + self.down(h)


model = nn.Sequential(*(Block(64) for _ in range(4)), nn.Linear(64, 8)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x, y = torch.randn(32, 64, device=device), torch.randint(0, 8, (32,), device=device)
total = torch.zeros((), device=device)
for step in range(400):
    optimizer.zero_grad()
    out = model(x)
    loss = F.cross_entropy(out, y)
    loss.backward()
    optimizer.step()
    total += loss.detach()
"""


@dataclass(frozen=True)
class Regression:
    """An edit, the metric it makes worse without a GPU and with one, and what must be named."""

    old: str
    new: str
    metric: str
    gpu_metric: str
    names: tuple[str, ...]
    line: str  # of the edited script: its text, to be found again
    gpu_names: tuple[str, ...] = ()

    @property
    def script(self) -> str:
        assert SCRIPT.count(self.old) == 1, self.old
        return SCRIPT.replace(self.old, self.new)

    @property
    def line_number(self) -> int:
        lines = self.script.splitlines()
        return next(i for i, line in enumerate(lines, 1) if self.line in line)


REGRESSIONS = {
    "extra elementwise op": Regression(
        old="    loss = F.cross_entropy(out, y)",
        new="    out = out * 1.5\n    loss = F.cross_entropy(out, y)",
        metric="device_ops_per_step",
        gpu_metric="launches_per_step",
        names=("aten.mul",),
        line="out = out * 1.5",
        gpu_names=("elementwise_kernel",),
    ),
    "added .item()": Regression(
        old="    loss.backward()\n",
        new="    if loss.item() > 1e4:\n        print('diverged')\n    loss.backward()\n",
        metric="blockers",
        gpu_metric="syncs_per_step",
        names=("aten._local_scalar_dense",),
        line="if loss.item() > 1e4",
    ),
    "lost fusion": Regression(
        old='        h = F.gelu(h, approximate="tanh")',
        new="        h = 0.5 * h * (1 + torch.tanh(0.79788 * (h + 0.044715 * h.pow(3))))",
        metric="device_ops_per_step",
        gpu_metric="launches_per_step",
        names=("aten.tanh", "aten.pow"),
        line="torch.tanh(0.79788",
        gpu_names=("tanh",),
    ),
    "foreach=False": Regression(
        old="lr=1e-3)",
        new="lr=1e-3, foreach=False)",
        metric="device_ops_per_step",
        gpu_metric="launches_per_step",
        names=("aten.addcdiv_", "aten.lerp_"),
        line="optimizer.step()",
        gpu_names=("elementwise_kernel",),
    ),
}
