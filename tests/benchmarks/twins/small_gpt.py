"""sample_workloads/small_gpt.py with its step in a CUDA graph, adopted by hand."""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F

from sample_workloads.small_gpt import GPT, VOCABULARY
from tests.benchmarks.twins.clock import Clock

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--result", type=Path, required=True)
args = parser.parse_args()

torch.manual_seed(0)
device = "cuda"
torch.cuda.set_stream(torch.cuda.Stream())  # before the model is made
model = GPT(6, 256, 8, 128).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), capturable=True)
corpus = torch.randint(0, VOCABULARY, (64, 8, 129), device=device)

static_batch = torch.empty((8, 129), dtype=torch.int64, device="cuda")


def captured_step():
    with torch.autocast(device, dtype=torch.bfloat16):
        logits = model(static_batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), static_batch[:, 1:].flatten())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss


clock = Clock(skip=50)
graph, steps_done = None, 0
for step in range(args.steps):
    clock.tick()
    batch = corpus[step % len(corpus)]
    static_batch.copy_(batch, non_blocking=True)
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
