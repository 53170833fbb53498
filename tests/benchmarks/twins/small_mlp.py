"""sample_workloads/small_mlp.py in a CUDA graph, adopted by hand."""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.benchmarks.twins.clock import Clock

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--result", type=Path, required=True)
args = parser.parse_args()

torch.manual_seed(0)
device = "cuda"
torch.cuda.set_stream(torch.cuda.Stream())  # before the model is made
features = torch.randn(4096, 256)
labels = features[:, :10].argmax(dim=1)
dataset = TensorDataset(features, labels)
loader = DataLoader(dataset, 64, shuffle=True, drop_last=True)

layers = []
for _ in range(8):
    layers += [nn.Linear(256, 256), nn.ReLU()]
model = nn.Sequential(*layers, nn.Linear(256, 10)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
loss_fn = nn.CrossEntropyLoss()

static_inputs = torch.empty((64, 256), dtype=torch.float32, device="cuda")
static_targets = torch.empty((64,), dtype=torch.int64, device="cuda")


def captured_step():
    optimizer.zero_grad()
    loss = loss_fn(model(static_inputs), static_targets)
    loss.backward()
    optimizer.step()
    return loss


clock = Clock(skip=50)
graph, steps_done = None, 0
while steps_done < args.steps:
    for inputs, targets in loader:
        clock.tick()
        inputs, targets = inputs.to(device), targets.to(device)
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
        if steps_done == args.steps:
            break
clock.stop(args.result)

print(f"done after {steps_done} steps, loss {loss.item():.4f}")
