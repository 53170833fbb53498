"""sample_workloads/transformer_inference.py in a CUDA graph, adopted by hand."""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from tests.benchmarks.twins.clock import Clock


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        x = self.norm1(x + self.out(attended.reshape(batch, length, width)))
        return self.norm2(x + self.down(F.gelu(self.up(x))))


class Encoder(nn.Module):
    def __init__(self, layers, width, heads, length, classes=4):
        super().__init__()
        self.tokens = nn.Embedding(8192, width)
        self.positions = nn.Parameter(torch.randn(length, width) * 0.02)
        self.layers = nn.ModuleList([Layer(width, heads) for _ in range(layers)])
        self.classifier = nn.Linear(width, classes)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.classifier(x[:, 0])


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--batch-size", type=int, default=1)
parser.add_argument("--length", type=int, default=64)
parser.add_argument("--layers", type=int, default=6)
parser.add_argument("--width", type=int, default=512)
parser.add_argument("--heads", type=int, default=8)
parser.add_argument("--result", type=Path, required=True)
args = parser.parse_args()

torch.manual_seed(0)
device = "cuda"
torch.cuda.set_stream(torch.cuda.Stream())  # before the model is made
model = Encoder(args.layers, args.width, args.heads, args.length).to(device).eval()
requests = torch.randint(0, 8192, (32, args.batch_size, args.length), device=device)
counts = torch.zeros(4, dtype=torch.long, device=device)

static_requests = torch.empty((1, 64), dtype=torch.int64, device="cuda")


def captured_step():
    logits = model(static_requests)
    return logits


clock = Clock(skip=50)
with torch.inference_mode():
    graph, steps_done = None, 0
    for step in range(args.steps):
        clock.tick()
        static_requests.copy_(requests[step % 32], non_blocking=True)
        if steps_done < 3:
            logits = captured_step()
        else:
            if graph is None:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(
                    graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"
                ):
                    logits = captured_step()
            graph.replay()
        steps_done += 1
        counts += F.one_hot(logits.argmax(dim=1), 4).sum(dim=0)
clock.stop(args.result)

print(f"done after {args.steps} batches, classes seen: {counts.tolist()}")
