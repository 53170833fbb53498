"""A training loop that says when it began. Knows nothing of launchscope."""

import argparse
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--layers", type=int, required=True)
parser.add_argument("--began", type=Path, required=True, help="gets the time of the first step")
args = parser.parse_args()

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
layers: list[nn.Module] = []
for _ in range(args.layers):
    layers += [nn.Linear(256, 256), nn.ReLU()]
model = nn.Sequential(*layers, nn.Linear(256, 10)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
inputs = torch.randn(64, 256, device=device)
labels = torch.randint(0, 10, (64,), device=device)

args.began.write_text(str(time.time()))
for _ in range(400):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
