"""A training script, and the same script with one thing made worse: what a gate has to catch.

Each edit is the kind of line that slips into a pull request. `names` are what a report of the
change has to name without a GPU; `gpu_names` beside them parts of names that a GPU adds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.processes import Done

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


_LOOP = "for step in range(400):\n"
_LAST = "    total += loss.detach()\n"


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
    before: str = ""  # lines before the loop

    @property
    def script(self) -> str:
        assert SCRIPT.count(self.old) == 1, self.old
        return SCRIPT.replace(self.old, self.new).replace(_LOOP, self.before + _LOOP)

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


def _planted(
    code: str, metric: str, name: str, *, gpu_metric: str | None = None, before: str = ""
) -> Regression:
    """A line after the optimizer's step, which is before the next forward."""
    return Regression(
        old=_LAST,
        new=f"{_LAST}    {code}\n",
        metric=metric,
        gpu_metric=gpu_metric or metric,
        names=(name,),
        line=code,
        before=before,
    )


BETWEEN = {
    "running += loss.item()": _planted(
        "running += loss.item()",
        "between_syncs",
        "aten._local_scalar_dense",
        before="running = 0.0\n",
    ),
    ".cpu()": _planted("last = loss.detach().cpu()", "between_copies", "aten._to_copy"),
    "torch.cuda.synchronize()": _planted(
        "torch.cuda.synchronize()", "between_syncs", "torch.cuda.synchronize"
    ),
    "EMA": _planted(
        "torch._foreach_lerp_(ema, [p.detach() for p in model.parameters()], 0.01)",
        "between_ops",
        "aten._foreach_lerp_",
        gpu_metric="between_launches",
        before="ema = [p.detach().clone() for p in model.parameters()]\n",
    ),
    "another batch to the device": _planted(
        "extra = batches[step % 4].to(device)",
        "between_copies",
        "aten._to_copy",
        before="batches = torch.randn(4, 32, 64)\n",
    ),
    "print(loss)": _planted("print(loss)", "between_syncs", "torch.Tensor.__repr__"),
}
BETWEEN["zero_grad(set_to_none=False)"] = Regression(
    old="    optimizer.zero_grad()",
    new="    optimizer.zero_grad(set_to_none=False)",
    metric="between_ops",
    gpu_metric="between_launches",
    names=("aten.zero_", "aten.add_"),  # and in the step the backward adds to the gradients
    line="optimizer.zero_grad(set_to_none=False)",
)


def all_at_once() -> str:
    """The script with all of these regressions."""
    script = SCRIPT
    for one in BETWEEN.values():
        script = script.replace(one.old, one.new).replace(_LOOP, one.before + _LOOP)
    return script


_LOADER = """
import random
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

device = "cuda" if torch.cuda.is_available() else "cpu"


class Data(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.randn(16) / 2, torch.randint(0, 4, ())


model = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.5), nn.ReLU(), nn.Linear(32, 4)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(Data(), batch_size=8, shuffle=True, num_workers={workers})
step = 0
for epoch in range(400):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        {update}
        step += 1
        {end}
"""
_EVALUATION = """if step % 4 == 0:
            model.eval()
            with torch.no_grad():
                for x, y in loader:
                    hits = (model(x.to(device)).argmax(1) == y.to(device)).sum().item()
            model.train()"""


def _loader(end: str = "pass", update: str = "optimizer.step()", workers: int = 0) -> str:
    return _LOADER.format(end=end, update=update, workers=workers)


# Scripts that a gate must let pass as long as nobody changes them.
UNCHANGED = {
    "workers": _loader(workers=2),
    "evaluation": _loader(_EVALUATION),
    "logging": _loader("if step % 10 == 0: print(step, loss.item(), loss)"),
    "accumulation": _loader(update="if step % 4 == 3: optimizer.step()"),
    "chance_between": _loader(
        "if random.random() < 0.9: z = x.flip(0) * 2\n"
        "        if random.random() < 0.1: print(loss.item())"
    ),
    "chance_in_step": _loader(
        update="if random.random() < 0.1: torch._assert(loss.item() >= 0, 'nan')\n"
        "        if random.random() < 0.9: loss = loss * 1.0\n"
        "        if random.random() < 0.5: nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        "        optimizer.step()"
    ),
}


def baselines_of(folder: Path, check: Callable[..., Done]) -> Path:
    """Of the script, which `check(folder, *words)` checks."""
    (folder / "train.py").write_text(SCRIPT)
    place = folder / "baselines"
    made = check(folder, "--baseline", str(place), "--update-baseline", "--repeats", "2",
                 "train.py")  # fmt: skip
    assert made.returncode == 0, made.stderr
    return place
