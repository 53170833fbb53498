"""Scripts that the workflows run."""

from __future__ import annotations

TRAINING = """
import sys, torch
width = int(sys.argv[1]) if len(sys.argv) > 1 else 4
model = torch.nn.Linear(width, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(30):
    loss = model(torch.randn(2, width)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
