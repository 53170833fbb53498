"""Fit a small network with a hand-written SGD: no torch.optim anywhere."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--batch-size", type=int, default=128)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--lr", type=float, default=0.05)
args = parser.parse_args()

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Sequential(
    nn.Linear(1, args.width),
    nn.Tanh(),
    nn.Linear(args.width, args.width),
    nn.Tanh(),
    nn.Linear(args.width, 1),
).to(device)

x = torch.linspace(-3, 3, args.batch_size, device=device).unsqueeze(1)
y = torch.sin(x)

for _ in range(args.steps):
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= args.lr * p.grad
            p.grad = None

print(f"done after {args.steps} steps, loss {loss.item():.4f}")
