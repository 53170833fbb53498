"""Train a network that decides from its input how much work to do."""

import argparse
import random

import torch
import torch.nn.functional as F
from torch import nn


class SecondLook(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.stem = nn.Linear(32, width)
        self.body = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])
        self.refine = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])
        self.head = nn.Linear(width, 4)

    def forward(self, x):
        faint = x.std() < 0.5
        x = F.relu(self.stem(x))
        for layer in self.body:
            x = F.relu(layer(x))
        # Faint batches take a second look: the branch depends on a value on the device.
        if faint:
            for layer in self.refine:
                x = x + F.relu(layer(x))
        return self.head(x)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--width", type=int, default=128)
parser.add_argument("--layers", type=int, default=4)
args = parser.parse_args()

random.seed(0)
torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = SecondLook(args.width, args.layers).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
teacher = torch.randn(32, 4, device=device)

for _ in range(args.steps):
    # About one batch in three is faint.
    contrast = 0.1 if random.random() < 0.33 else 1.0
    x = contrast * torch.randn(args.batch_size, 32, device=device)
    labels = (x @ teacher).argmax(dim=1)
    loss = F.cross_entropy(model(x), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print(f"done after {args.steps} steps, loss {loss.item():.4f}")
