"""Train a small MLP through torch.compile."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--width", type=int, default=256)
parser.add_argument("--mode", default=None, help='for example "reduce-overhead"')
args = parser.parse_args()

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(
    nn.Linear(args.width, args.width),
    nn.LayerNorm(args.width),
    nn.GELU(),
    nn.Linear(args.width, args.width),
    nn.LayerNorm(args.width),
    nn.GELU(),
    nn.Linear(args.width, 10),
).to(device)
compiled = torch.compile(model, mode=args.mode)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

inputs = torch.randn(16, args.batch_size, args.width, device=device)
labels = torch.randint(0, 10, (16, args.batch_size), device=device)

for step in range(args.steps):
    loss = F.cross_entropy(compiled(inputs[step % 16]), labels[step % 16])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print(f"done after {args.steps} steps, loss {loss.item():.4f}")
