"""sample_workloads/convnet.py with its step in a CUDA graph, adopted by hand."""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F

from sample_workloads.convnet import ResNet
from tests.benchmarks.twins.clock import Clock

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--result", type=Path, required=True)
args = parser.parse_args()

torch.manual_seed(0)
device = "cuda"
torch.cuda.set_stream(torch.cuda.Stream())  # before the model is made
model = ResNet(16, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
images = torch.randn(8, 32, 3, 32, 32, device=device)
labels = torch.randint(0, 10, (8, 32), device=device)

static_images = torch.empty((32, 3, 32, 32), dtype=torch.float32, device="cuda")
static_labels = torch.empty((32,), dtype=torch.int64, device="cuda")


def captured_step():
    logits = model(static_images)
    loss = F.cross_entropy(logits, static_labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


clock = Clock(skip=50)
graph, steps_done = None, 0
for step in range(args.steps):
    clock.tick()
    static_images.copy_(images[step % 8], non_blocking=True)
    static_labels.copy_(labels[step % 8], non_blocking=True)
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
