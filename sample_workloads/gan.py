"""Train a small DCGAN: two networks, two optimizers, three forwards per iteration."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--latent", type=int, default=64)
parser.add_argument("--width", type=int, default=16)
args = parser.parse_args()

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
w = args.width

generator = nn.Sequential(
    nn.ConvTranspose2d(args.latent, 4 * w, 4, 1, 0, bias=False),
    nn.BatchNorm2d(4 * w),
    nn.ReLU(),
    nn.ConvTranspose2d(4 * w, 2 * w, 4, 2, 1, bias=False),
    nn.BatchNorm2d(2 * w),
    nn.ReLU(),
    nn.ConvTranspose2d(2 * w, w, 4, 2, 1, bias=False),
    nn.BatchNorm2d(w),
    nn.ReLU(),
    nn.ConvTranspose2d(w, 3, 4, 2, 1),
    nn.Tanh(),
).to(device)
discriminator = nn.Sequential(
    nn.Conv2d(3, w, 4, 2, 1),
    nn.LeakyReLU(0.2),
    nn.Conv2d(w, 2 * w, 4, 2, 1),
    nn.LeakyReLU(0.2),
    nn.Conv2d(2 * w, 4 * w, 4, 2, 1),
    nn.LeakyReLU(0.2),
    nn.Conv2d(4 * w, 1, 4, 1, 0),
    nn.Flatten(0),
).to(device)

optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
criterion = nn.BCEWithLogitsLoss()
real_label = torch.ones(args.batch_size, device=device)
fake_label = torch.zeros(args.batch_size, device=device)
photos = torch.rand(16, args.batch_size, 3, 32, 32, device=device) * 2 - 1

for step in range(args.steps):
    # The discriminator learns to tell real from fake.
    optimizer_d.zero_grad()
    loss_real = criterion(discriminator(photos[step % 16]), real_label)
    loss_real.backward()
    noise = torch.randn(args.batch_size, args.latent, 1, 1, device=device)
    fake = generator(noise)
    loss_fake = criterion(discriminator(fake.detach()), fake_label)
    loss_fake.backward()
    optimizer_d.step()

    # The generator learns to be taken for real.
    optimizer_g.zero_grad()
    loss_g = criterion(discriminator(fake), real_label)
    loss_g.backward()
    optimizer_g.step()

print(f"done after {args.steps} steps, D {loss_real + loss_fake:.4f}, G {loss_g:.4f}")
