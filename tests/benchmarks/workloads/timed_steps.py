"""A training loop that times itself, the same way whoever runs it.

Between the start of step `--first` and the start of step `--last` it takes the wall time,
with a synchronization at both ends and none in between, and writes it to `--result` as
JSON, together with the time at which the first step began. Knows nothing of launchscope.
"""

import argparse
import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--layers", type=int, default=8)
parser.add_argument("--width", type=int, default=256)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--first", type=int, default=12)
parser.add_argument("--last", type=int, default=38)
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--result", type=Path, required=True)
args = parser.parse_args()

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
layers = []
for _ in range(args.layers):
    layers += [nn.Linear(args.width, args.width), nn.ReLU()]
model = nn.Sequential(*layers, nn.Linear(args.width, 10)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
inputs = torch.randn(args.batch_size, args.width, device=device)
labels = torch.randint(0, 10, (args.batch_size,), device=device)


def now() -> int:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter_ns()


report = {"began": time.time()}
args.result.write_text(json.dumps(report))
for step in range(args.steps):
    if step == args.first:
        begin_ns = now()
    elif step == args.last:
        end_ns = now()
        report["step_ms"] = (end_ns - begin_ns) / 1e6 / (args.last - args.first)
        report |= {"begin_ns": begin_ns, "end_ns": end_ns}
        args.result.write_text(json.dumps(report))
    optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
