"""reduce-overhead, no faster: each batch is padded to its own longest sequence."""

import random

import torch
from torch import nn

model = nn.Sequential(nn.Embedding(100, 32), nn.Linear(32, 100)).cuda()
compiled = torch.compile(model, mode="reduce-overhead")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(100):
    tokens = torch.randint(0, 100, (4, random.randint(8, 64)), device="cuda")
    optimizer.zero_grad()
    nn.functional.cross_entropy(compiled(tokens).flatten(0, 1), tokens.flatten()).backward()
    optimizer.step()
