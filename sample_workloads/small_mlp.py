"""Train a small MLP classifier on synthetic data: many small kernels per step."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--width", type=int, default=256)
parser.add_argument("--layers", type=int, default=8)
args = parser.parse_args()

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"

features = torch.randn(4096, args.width)
labels = features[:, :10].argmax(dim=1)
dataset = TensorDataset(features, labels)
loader = DataLoader(dataset, args.batch_size, shuffle=True, drop_last=True)

layers = []
for _ in range(args.layers):
    layers += [nn.Linear(args.width, args.width), nn.ReLU()]
model = nn.Sequential(*layers, nn.Linear(args.width, 10)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loss_fn = nn.CrossEntropyLoss()

step = 0
while step < args.steps:
    for inputs, targets in loader:
        inputs, targets = inputs.to(device), targets.to(device)
        optimizer.zero_grad()
        loss = loss_fn(model(inputs), targets)
        loss.backward()
        optimizer.step()
        step += 1
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
        if step == args.steps:
            break

print(f"done after {step} steps, loss {loss.item():.4f}")
