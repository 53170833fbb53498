"""What a call of `graphed` costs, the memory of several graphs, and the speed of a step.

    python -m tests.benchmarks.graphed FILE [--only WORD...] [--nanogpt CHECKOUT]

FILE gets one line of JSON per case, measured on one GPU that does nothing else. `--only` takes
parts of names.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from launchscope.graphed import graphed
from tests.benchmarks import graphed_speed

PARAMETERS = (10, 100, 1000)
BATCHES = (8, 6, 4, 2)  # of the graphs whose memory is measured


def cost(count: int) -> dict[str, Any]:
    """Microseconds on the host of a call, beside those of the replay of its graph.

    The optimizer is fused; the parameters are tiny, so that the GPU is never the limit of one call.
    Calls in a row wait for the GPU where its work takes longer than the guards of the next call.
    """
    model = nn.ModuleList([nn.Linear(4, 4) for _ in range(count // 2)]).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    x = torch.randn(4, 4, device="cuda")

    @graphed
    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        total = torch.zeros((), device="cuda")
        for layer in model:
            total = total + layer(x).square().mean()
        total.backward()
        optimizer.step()
        return total.detach()

    for _ in range(6):
        step(x)
    [program] = step._programs()
    kind = step._all_kinds()[-1]
    graph = program.parts[0].graph

    def once(call: Callable[[], Any]) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        return 1e6 * (time.perf_counter() - start)

    calls, replays, guards = [], [], []
    for _ in range(200):
        calls.append(once(lambda: step(x)))
        replays.append(once(graph.replay))
        guards.append(once(kind.holds))
    return {
        "call_us": median(calls),
        "replay_us": median(replays),
        "guard_us": median(guards),
        "beyond_the_replay_us": median(calls) - median(replays),
    }


def memory(graphs: int, shared: bool) -> dict[str, float]:
    """MiB on the GPU of a small GPT with that many graphs, each of another batch size, in one pool
    or each in its own. Without graphs: of the eager step."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_reserved()
    model = graphed_speed.sample("small_gpt").GPT(6, 256, 8, 128).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def train(tokens: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss.detach()

    step: Any = graphed(check=0)(train) if graphs else train
    for size in BATCHES[: graphs or None]:
        for _ in range(6):
            step(torch.zeros((size, 129), dtype=torch.long, device="cuda"))
        for program in [] if shared or not graphs else step._programs():
            program.pool = None  # no later graph finds it
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_reserved() - before
    torch.cuda.empty_cache()
    reserved = torch.cuda.memory_reserved() - before
    if graphs:
        assert step.stats.graphs == graphs, step.stats
        step.reset()
    return {"reserved_mib": reserved / 2**20, "peak_mib": peak / 2**20}


def memories() -> dict[str, Any]:
    ways = [(0, True), (1, True), *((n, way) for n in (2, 4) for way in (True, False))]
    return {f"{n} graphs, {'one pool' if way else 'own pools'}": memory(n, way) for n, way in ways}


def cases(nanogpt: Path | None) -> dict[str, Callable[[], dict[str, Any]]]:
    costs = {f"cost_{n}_parameters": functools.partial(cost, n) for n in PARAMETERS}
    speeds = {
        f"speed_{name}": functools.partial(graphed_speed.measured, make)
        for name, make in graphed_speed.makers(nanogpt).items()
    }
    return {"memory": memories, **costs, **speeds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD")
    parser.add_argument("--nanogpt", type=Path, metavar="CHECKOUT")
    chosen = parser.parse_args()
    where = {"torch": torch.__version__, "device": torch.cuda.get_device_name()}
    for name, measure in cases(chosen.nanogpt).items():
        if any(word in name for word in chosen.only):
            line = json.dumps({"case": name, **where, **measure()})
            with chosen.file.open("a") as stream:
                stream.write(line + "\n")
            print(line, flush=True)


if __name__ == "__main__":
    main()
