"""Train an MLP autoencoder in fp16 with autocast and a GradScaler."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--batch-size", type=int, default=128)
parser.add_argument("--width", type=int, default=512)
args = parser.parse_args()

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
use_amp = device == "cuda"

model = nn.Sequential(
    nn.Linear(784, args.width),
    nn.ReLU(),
    nn.Linear(args.width, 32),
    nn.Linear(32, args.width),
    nn.ReLU(),
    nn.Linear(args.width, 784),
).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler(device, enabled=use_amp)
images = torch.rand(16, args.batch_size, 784, device=device)

for step in range(args.steps):
    batch = images[step % 16]
    optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.float16, enabled=use_amp):
        loss = F.mse_loss(model(batch), batch)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()

print(f"done after {args.steps} steps, loss {loss.item():.4f}")
