"""Train a variational autoencoder that reads its loss with .item() inside every step."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class VAE(nn.Module):
    def __init__(self, width, latent=20):
        super().__init__()
        self.encode = nn.Linear(784, width)
        self.mean = nn.Linear(width, latent)
        self.log_variance = nn.Linear(width, latent)
        self.decode = nn.Sequential(nn.Linear(latent, width), nn.ReLU(), nn.Linear(width, 784))

    def forward(self, x):
        hidden = F.relu(self.encode(x))
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        return self.decode(z), mean, log_variance


def vae_loss(logits, x, mean, log_variance):
    reconstruction = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
    divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
    return (reconstruction + divergence) / len(x)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--batch-size", type=int, default=128)
parser.add_argument("--width", type=int, default=400)
args = parser.parse_args()

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = VAE(args.width).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
digits = torch.rand(16, args.batch_size, 784, device=device)

model.train()
train_loss = 0.0
for step in range(args.steps):
    x = digits[step % 16]
    optimizer.zero_grad()
    logits, mean, log_variance = model(x)
    loss = vae_loss(logits, x, mean, log_variance)
    loss.backward()
    train_loss += loss.item()
    optimizer.step()

print(f"done after {args.steps} steps, mean loss {train_loss / args.steps:.4f}")
