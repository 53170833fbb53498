"""Train a character-level LSTM language model on synthetic text."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

CHARACTERS = 96


class CharLSTM(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.embedding = nn.Embedding(CHARACTERS, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, CHARACTERS)

    def forward(self, characters):
        hidden, _ = self.lstm(self.embedding(characters))
        return self.head(hidden)


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--length", type=int, default=64)
parser.add_argument("--width", type=int, default=128)
parser.add_argument("--layers", type=int, default=2)
args = parser.parse_args()

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
text = torch.randint(0, CHARACTERS, (args.batch_size, 50 * args.length + 1), device=device)
model = CharLSTM(args.width, args.layers).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

for step in range(args.steps):
    start = step % 50 * args.length
    inputs = text[:, start : start + args.length]
    targets = text[:, start + 1 : start + args.length + 1]

    optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()

print(f"done after {args.steps} steps, loss {loss.item():.4f}")
