"""Train a small residual network on synthetic 32x32 images."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, in_channels, channels, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Identity()
        if stride != 1 or in_channels != channels:
            self.shortcut = nn.Conv2d(in_channels, channels, 1, stride, bias=False)

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return F.relu(out + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, width, blocks, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        stages, channels = [], width
        for stage in range(3):
            for block in range(blocks):
                out = width * 2**stage
                stride = 2 if stage > 0 and block == 0 else 1
                stages.append(Block(channels, out, stride))
                channels = out
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(channels, classes)

    def forward(self, x):
        x = self.stages(F.relu(self.stem(x)))
        return self.head(x.mean(dim=(2, 3)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--blocks", type=int, default=3)
    args = parser.parse_args()

    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = ResNet(args.width, args.blocks).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)

    images = torch.randn(8, args.batch_size, 3, 32, 32, device=device)
    labels = torch.randint(0, 10, (8, args.batch_size), device=device)

    for step in range(args.steps):
        logits = model(images[step % 8])
        loss = F.cross_entropy(logits, labels[step % 8])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    print(f"done after {args.steps} steps, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
