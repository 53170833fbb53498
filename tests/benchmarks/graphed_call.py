"""Host time of one `graphed` call beside the replay itself, for models of 10 to 1,000 parameters.

    python -m tests.benchmarks.graphed_call FILE

Needs a GPU. Each case trains, or only runs, a chain of tiny layers. Calls of `graphed` and bare
replays of the very graph that it has captured are timed in turns, each on an idle GPU, so that no
call waits for room in the queue; the cases take turns, too, in blocks. The copies of the two inputs
count to the call, and are taken off at 5 us each. A line through all cases gives what a call adds
to a bare replay: a constant, a part for each parameter, and one more for each that an optimizer
trains.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from launchscope import graphed

LAYERS = (5, 25, 50, 150, 500)  # two parameters each
ROUNDS, BLOCK = 15, 20
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer] | None] = {
    "inference": None,
    "SGD": torch.optim.SGD,
    "SGD, momentum": lambda parameters: torch.optim.SGD(parameters, lr=1e-3, momentum=0.9),
    "AdamW, fused": lambda parameters: torch.optim.AdamW(parameters, fused=True),
    "AdamW": torch.optim.AdamW,
}
INPUTS = 2
COPY_HOST_US = 5.0  # one eager copy_ and its launch


class Case:
    """A step under `graphed` that is being replayed, and the graph of its replays."""

    def __init__(self, name: str, layers: int) -> None:
        make = OPTIMIZERS[name]
        model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(layers))).cuda()
        optimizer = make(model.parameters()) if make is not None else None
        self.x, self.y = torch.randn(2, 8, 16, device="cuda")

        @graphed
        def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            if optimizer is None:
                with torch.no_grad():
                    return F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        self.step, self.name, self.parameters = step, name, 2 * layers
        for _ in range(30):
            step(self.x, self.y)
        [program] = step._programs()
        [part] = program.parts
        self.replay = part.graph.replay
        self.trained = self.parameters if optimizer is not None else 0
        self.calls: list[float] = []
        self.replays: list[float] = []

    def time(self) -> None:
        """A block of calls and of replays in turn, each on an idle GPU."""
        for _ in range(BLOCK):
            for kept, call in (
                (self.calls, lambda: self.step(self.x, self.y)),
                (self.replays, self.replay),
            ):
                torch.cuda.synchronize()
                began = time.perf_counter()
                call()
                kept.append(1e6 * (time.perf_counter() - began))

    def row(self) -> dict[str, Any]:
        assert self.step.stats.replayed >= ROUNDS * BLOCK
        own_us = median(self.calls) - median(self.replays) - INPUTS * COPY_HOST_US
        return {
            "optimizer": self.name,
            "parameters": self.parameters,
            "trained": self.trained,
            "call_us": quantiles(self.calls, n=4),
            "replay_us": quantiles(self.replays, n=4),
            "own_us": own_us,
        }


def fitted(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The line through the rows, and by how much it is off. Relative errors count, so that its
    constant is not that of the largest models."""
    known = np.array([[1, row["parameters"], row["trained"]] for row in rows], float)
    own = np.array([row["own_us"] for row in rows])
    line = np.linalg.lstsq(known / own[:, None], np.ones(len(own)), rcond=None)[0]
    off = 100 * (known @ line / own - 1)
    return {"line_us": line.tolist(), "off_pct": off.tolist()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    chosen = parser.parse_args()
    cases = [Case(name, layers) for name in OPTIMIZERS for layers in LAYERS]
    for _ in range(ROUNDS):
        for case in cases:
            case.time()
    rows = [case.row() for case in cases]
    content = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        **fitted(rows),
        "rows": rows,
    }
    chosen.file.write_text(json.dumps(content, indent=1) + "\n")
    for row, off in zip(rows, content["off_pct"]):
        print(
            f"{row['optimizer']:14s} {row['parameters']:5d} parameters: {row['own_us']:7.1f} us "
            f"beside a replay of {row['replay_us'][1]:6.1f} us (the line is off by {off:+.0f} %)"
        )
    constant, of_each, of_trained = content["line_us"]
    print(f"{constant:.0f} us + {of_each:.2f} a parameter + {of_trained:.2f} more if it is trained")


if __name__ == "__main__":
    main()
