"""Train a wide MLP on large batches: few, long kernels that keep a GPU busy."""

import argparse

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--batch-size", type=int, default=16384 if device == "cuda" else 64)
parser.add_argument("--width", type=int, default=2048 if device == "cuda" else 512)
args = parser.parse_args()

torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(args.width, args.width),
    nn.GELU(),
    nn.Linear(args.width, args.width),
    nn.GELU(),
    nn.Linear(args.width, args.width),
).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
loss_fn = nn.MSELoss()

inputs = torch.randn(args.batch_size, args.width, device=device)
targets = torch.roll(inputs, 1, dims=1)

for _ in range(args.steps):
    optimizer.zero_grad()
    loss = loss_fn(model(inputs), targets)
    loss.backward()
    optimizer.step()

print(f"done after {args.steps} steps, loss {loss.item():.4f}")
