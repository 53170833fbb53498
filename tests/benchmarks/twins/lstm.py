"""sample_workloads/lstm.py in a CUDA graph, adopted by hand."""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from tests.benchmarks.twins.clock import Clock

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
parser.add_argument("--result", type=Path, required=True)
args = parser.parse_args()

torch.manual_seed(0)
device = "cuda"
torch.cuda.set_stream(torch.cuda.Stream())  # before the model is made
text = torch.randint(0, CHARACTERS, (args.batch_size, 50 * args.length + 1), device=device)
model = CharLSTM(args.width, args.layers).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, capturable=True)

static_inputs = torch.empty((32, 64), dtype=torch.int64, device="cuda")
static_targets = torch.empty((32, 64), dtype=torch.int64, device="cuda")


def captured_step():
    optimizer.zero_grad()
    loss = F.cross_entropy(model(static_inputs).flatten(0, 1), static_targets.flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    return loss


clock = Clock(skip=50)
graph, steps_done = None, 0
for step in range(args.steps):
    clock.tick()
    start = step % 50 * args.length
    inputs = text[:, start : start + args.length]
    targets = text[:, start + 1 : start + args.length + 1]
    static_inputs.copy_(inputs, non_blocking=True)
    static_targets.copy_(targets, non_blocking=True)
    if steps_done < 3:
        loss = captured_step()
    else:
        if graph is None:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(
                graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"
            ):
                loss = captured_step()
        graph.replay()
    steps_done += 1
clock.stop(args.result)

print(f"done after {args.steps} steps, loss {loss.item():.4f}")
