"""A script whose step runs each optimizer with each set of flags that the advice can name."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from launchscope.model import CAPTURE_FLAGS, Profile
from launchscope.parser import read_profile
from tests.processes import launchscope

ADVISED = [
    (known.optimizer, flags, known.follows_rate)
    for known in CAPTURE_FLAGS
    for flags in ((known.flag,), known.with_scaler)
    if flags
]
STEPS = [f"optimizers[{number}].step()" for number in range(len(ADVISED))]
_BODY = "\n    ".join(STEPS)
SCRIPT = f"""
import torch
nets, optimizers = [], []
for kind, flags, takes_tensor in {ADVISED}:
    net = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(2)]).cuda()
    rate = torch.tensor(1e-3, device="cuda") if takes_tensor else 1e-3
    make = getattr(torch.optim, kind)
    optimizers.append(make(net.parameters(), lr=rate, **dict.fromkeys(flags, True)))
    nets.append(net)
x = torch.randn(2, 4, device="cuda")
for _ in range(40):
    for optimizer in optimizers:
        optimizer.zero_grad()
    sum(net(x).mean() for net in nets).backward()
    {_BODY}
"""


def profiled(folder: Path, **environ: str) -> Profile:
    (folder / "train.py").write_text(SCRIPT)
    words = "profile", "--replay", "0", "-q", "-o", "p.json", "train.py"
    ran = launchscope(folder, *words, environ=environ)
    assert ran.returncode == 0, ran.stderr
    return read_profile(folder / "p.json")


def operations(folder: Path, **environ: str) -> Counter[tuple[str, str]]:
    """How often each operation ran at each line."""
    profile = profiled(folder, **environ)
    return Counter({(str(row.where), row.name): row.count for row in profile.ops})
