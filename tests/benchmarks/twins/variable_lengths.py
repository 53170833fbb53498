"""sample_workloads/variable_lengths.py padded to a few lengths, with a CUDA graph for each.

The lengths are given, so that a bucket plan can be tried by hand.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from sample_workloads.variable_lengths import PAD, VOCABULARY, Classifier, collate
from tests.benchmarks.twins.clock import Clock

BATCH, LONGEST, WIDTH, LAYERS = 4, 96, 128, 3


class Bucket:
    """One padded length: static inputs, and a graph of the whole step once it is captured."""

    def __init__(self, length: int):
        self.tokens = torch.full((BATCH, length), PAD, device="cuda")
        self.labels = torch.zeros(BATCH, dtype=torch.long, device="cuda")
        self.graph: torch.cuda.CUDAGraph | None = None
        self.loss: Any = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", required=True, help="padded lengths, as 48,96; none: eager")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--result", type=Path, required=True)
    args = parser.parse_args()
    lengths = [int(length) for length in args.lengths.split(",")] if args.lengths != "none" else []

    random.seed(0)
    torch.manual_seed(0)
    torch.cuda.set_stream(torch.cuda.Stream())  # before the model is made
    sentences = []
    for _ in range(args.steps * BATCH):
        length = random.randint(4, LONGEST)
        sentences.append((torch.randint(1, VOCABULARY, (length,)), length % 2))
    loader = DataLoader(sentences, BATCH, collate_fn=collate)

    model = Classifier(WIDTH, LAYERS).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=bool(lengths))
    buckets = [Bucket(length) for length in sorted(lengths)]

    def step(tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss = F.cross_entropy(model(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    # Every graph is captured before the clock runs: its cost is reported separately.
    for bucket in buckets:
        bucket.tokens.random_(1, VOCABULARY)
        for _ in range(3):
            step(bucket.tokens, bucket.labels)
    for bucket in reversed(buckets):
        bucket.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(bucket.graph, stream=torch.cuda.current_stream()):
            bucket.loss = step(bucket.tokens, bucket.labels)

    clock = Clock(skip=50)
    loss = torch.zeros(())
    for tokens, labels in loader:
        clock.tick()
        width = tokens.shape[1]
        bucket = next((b for b in buckets if b.tokens.shape[1] >= width), None)
        if bucket is None or bucket.graph is None:
            loss = step(tokens.to("cuda"), labels.to("cuda"))
            continue
        bucket.tokens.fill_(PAD)
        bucket.tokens[:, :width].copy_(tokens, non_blocking=True)
        bucket.labels.copy_(labels, non_blocking=True)
        bucket.graph.replay()
        loss = bucket.loss
    clock.stop(args.result)
    print(f"done after {len(loader)} steps, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
