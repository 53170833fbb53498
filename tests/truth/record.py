"""Traces of programs whose times were measured without a profiler in the same process.

    python -m tests.truth.record FOLDER [--only NAME ...]

Needs a GPU; the two ranks need two. A program times its loop untraced (wall time of many
iterations between two synchronizations, and the same with the step replayed as a CUDA graph), is
then recorded as a user records it, with torch.profiler alone, and is timed once more. FOLDER gets
NAME.json.gz for each trace and NAME.truth.json with what was measured.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

# The straggler among the two ranks waits for as long in each step.
STRAGGLER_MS = 4.0
SETUP_S = 0.25
GRAPHED_SIZES, SIZES = (1, 2, 4, 8), (1, 3, 8, 2, 12, 4, 7, 16)
_STEPS, _ROUNDS = 8, 5


class Training:
    """A training step of some 2 ms on the host and 0.5 ms on the GPU."""

    def __init__(self, torch: Any, *, capturable: bool = False, layers: int = 8):
        nn = torch.nn
        blocks = [
            nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256))
            for _ in range(layers)
        ]
        self.torch = torch
        self.model = nn.Sequential(*blocks, nn.Linear(256, 10)).cuda()
        parameters = self.model.parameters()
        self.optimizer = torch.optim.AdamW(parameters, lr=1e-4, capturable=capturable)
        self.x = torch.randn(64, 256, device="cuda")
        self.y = torch.randint(0, 10, (64,), device="cuda")

    def step(self) -> None:
        self.optimizer.zero_grad()
        loss = self.torch.nn.functional.cross_entropy(self.model(self.x), self.y)
        loss.backward()
        self.optimizer.step()


class Decoder:
    """One new token for each of some sequences: a transformer over a cache of 128 positions."""

    def __init__(self, torch: Any, layers: int = 6, width: int = 512):
        nn = torch.nn
        self.torch = torch
        sizes = {"qkv": (1, 3), "out": (1, 1), "up": (1, 4), "down": (4, 1)}
        self.layers = [
            {n: nn.Linear(width * i, width * o).cuda().half() for n, (i, o) in sizes.items()}
            | {"norm": nn.LayerNorm(width).cuda().half()}
            for _ in range(layers)
        ]
        self.cache = torch.randn(layers, 2, 16, 8, 128, 64, device="cuda", dtype=torch.half)
        self.inputs = torch.randn(16, width, device="cuda", dtype=torch.half)

    def step(self, size: int) -> Any:
        functional = self.torch.nn.functional
        x = self.inputs[:size]
        for number, layer in enumerate(self.layers):
            q, k, v = layer["qkv"](layer["norm"](x)).view(size, 3, 8, 1, 64).unbind(1)
            keys, values = self.cache[number, 0, :size], self.cache[number, 1, :size]
            keys = self.torch.cat((keys[:, :, 1:], k), 2)
            values = self.torch.cat((values[:, :, 1:], v), 2)
            attended = functional.scaled_dot_product_attention(q, keys, values)
            x = x + layer["out"](attended.reshape(size, -1))
            x = x + layer["down"](functional.gelu(layer["up"](x)))
        return x.argmax(-1)


def captured(torch: Any, step: Callable[[], Any]) -> Any:
    """The step as a graph, after three runs on a side stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph


def wall_ms(torch: Any, step: Callable[[], Any], times: int = 100) -> float:
    """Wall time of an iteration: the median over rounds of many."""
    for _ in range(10):
        step()
    found = []
    for _ in range(_ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(times):
            step()
        torch.cuda.synchronize()
        found.append((time.perf_counter() - start) * 1e3 / times)
    return median(found)


def recorded(torch: Any, path: Path, body: Callable[[Any], Any], **options: Any) -> None:
    """The trace of `body(profiler)`, compressed."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, **options) as profiler:
        body(profiler)
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(plain))
        path.write_bytes(gzip.compress(plain.read_bytes(), 9, mtime=0))


def steps(torch: Any, step: Callable[[], Any]) -> tuple[Callable[[Any], None], dict[str, Any]]:
    """A recording of steps with marks, and its options."""

    def body(profiler: Any) -> None:
        for _ in range(3 + _STEPS):
            step()
            profiler.step()

    return body, {"schedule": torch.profiler.schedule(wait=1, warmup=2, active=_STEPS, repeat=1)}


def training(torch: Any, folder: Path) -> None:
    """Eager and replayed, each recorded."""
    eager, other = Training(torch), Training(torch, capturable=True)
    graph = captured(torch, other.step)
    before = wall_ms(torch, eager.step), wall_ms(torch, graph.replay)
    for name, step in (("training_eager", eager.step), ("training_replayed", graph.replay)):
        body, options = steps(torch, step)
        recorded(torch, folder / f"{name}.json.gz", body, **options)
    after = wall_ms(torch, eager.step), wall_ms(torch, graph.replay)
    _truth(
        folder, "training_eager", eager_ms=[before[0], after[0]], replay_ms=[before[1], after[1]]
    )
    _truth(folder, "training_replayed", replay_ms=[before[1], after[1]])


def serving(torch: Any, folder: Path) -> None:
    """A scheduler that decodes batches of changing sizes, with and without graphs of some sizes."""
    with torch.inference_mode():
        model = Decoder(torch)
        graphs = {size: captured(torch, partial(model.step, size)) for size in SIZES}
        times = {
            size: {
                "eager_ms": wall_ms(torch, partial(model.step, size)),
                "replay_ms": wall_ms(torch, graphs[size].replay),
            }
            for size in SIZES
        }

        def serve(with_graphs: bool) -> Callable[[Any], None]:
            def body(_: Any) -> None:
                for size in SIZES * 3:
                    # Padded to the next size that has a graph, as the serving engines do.
                    room = [known for known in GRAPHED_SIZES if known >= size]
                    with torch.profiler.record_function(f"step[DECODE bs={size}]"):
                        if with_graphs and room:
                            graphs[room[0]].replay()
                        else:
                            model.step(size)

            return body

        for name, with_graphs in (("serving_eager", False), ("serving_graphs", True)):
            body = serve(with_graphs)
            body(None)
            torch.cuda.synchronize()
            loop = wall_ms(torch, partial(body, None), 5) / (3 * len(SIZES))
            recorded(torch, folder / f"{name}.json.gz", body)
            again = wall_ms(torch, partial(body, None), 5) / (3 * len(SIZES))
            _truth(
                folder, name, iteration_ms=[loop, again], graphed=list(GRAPHED_SIZES),
                sizes=list(SIZES), times=times,
            )  # fmt: skip


def with_setup(torch: Any, folder: Path) -> None:
    """A recording that begins before the model exists, without marks of steps."""
    found: list[Any] = []

    def body(_: Any) -> None:
        found.append(Training(torch, layers=9))
        torch.zeros(1 << 28, device="cuda")  # memory that the loop uses is asked for
        time.sleep(SETUP_S)
        for _ in range(20):
            found[0].step()

    recorded(torch, folder / "with_setup.json.gz", body)
    other = Training(torch, capturable=True, layers=9)
    graph = captured(torch, other.step)
    _truth(
        folder, "with_setup", setup_ms=SETUP_S * 1e3, iterations=20,
        eager_ms=[wall_ms(torch, found[0].step)], replay_ms=[wall_ms(torch, graph.replay)],
    )  # fmt: skip


def ranks(torch: Any, folder: Path) -> None:
    """Two processes with DDP, of which rank 1 is late by STRAGGLER_MS before each backward."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        "-m", "tests.truth.record", str(folder), "--only", "one_rank",
    ]  # fmt: skip
    subprocess.run(command, check=True, timeout=240)


def one_rank(torch: Any, folder: Path) -> None:
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl")
    work = Training(torch, layers=12)
    work.model = torch.nn.parallel.DistributedDataParallel(work.model, device_ids=[rank])

    def step(late: bool = True) -> None:
        work.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(work.model(work.x), work.y)
        if late and rank == 1:
            time.sleep(STRAGGLER_MS / 1e3)
        loss.backward()
        work.optimizer.step()

    even = wall_ms(torch, lambda: step(late=False))
    late = wall_ms(torch, step)
    body, options = steps(torch, step)
    recorded(torch, folder / f"rank{rank}.json.gz", body, **options)
    again = wall_ms(torch, step)
    _truth(folder, f"rank{rank}", even_ms=[even], iteration_ms=[late, again], late_rank=1)
    torch.distributed.destroy_process_group()


PROGRAMS = {f.__name__: f for f in (with_setup, training, serving, ranks, one_rank)}


def _truth(folder: Path, name: str, **values: Any) -> None:
    (folder / f"{name}.truth.json").write_text(json.dumps(values, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", default=[], choices=PROGRAMS)
    given = parser.parse_args()
    import torch

    given.folder.mkdir(parents=True, exist_ok=True)
    if given.only:
        for name in given.only:
            PROGRAMS[name](torch, given.folder)
        return
    # Each in a process of its own: what one left in memory is no set-up of another.
    for name in [name for name in PROGRAMS if name != "one_rank"]:
        command = [sys.executable, "-m", "tests.truth.record", str(given.folder), "--only", name]
        subprocess.run(command, check=True, timeout=300)


if __name__ == "__main__":
    main()
