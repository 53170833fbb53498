"""Runs inside a script of the corpus: times its iterations, and captures the step of an edited one.

The edits in `edits/` insert calls to this module into a copy of the script. The first iterations
are compared: each one's loss is kept. The next ones are timed in blocks, with a synchronization
after each block. Then the result is written to the file that the runner named, and the script ends.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

VARIABLE = "LAUNCHSCOPE_STOPWATCH"  # by_hand.py sets it
WARM_UP = 3
LEAST_BLOCKS = 3
GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"


class Settings(NamedTuple):
    """What the runner passes on. `compared` and `timed` count iterations; after `limit_s` seconds
    the timing ends, with three blocks at least."""

    output: str
    compared: int
    timed: int
    limit_s: float
    block: int


def synchronize() -> None:
    if GPU:
        torch.cuda.synchronize()


class Captured:
    """A step as a CUDA graph, made with `torch.cuda.graph` as docs/adopting-a-graph.md shows it.

    The first calls run the step eagerly on a side stream. The next call captures it, and from then
    on each call copies its tensors into the static inputs and replays. What a replay returns is
    written again by the next one. A batch of another shape runs eagerly. Without a GPU, the step
    runs on its static inputs each time, and counts no replay.
    """

    made: ClassVar[list[Captured]] = []
    stream: ClassVar[Any] = None  # one for all, because steps may share parameters

    def __init__(self, step: Callable[..., Any]) -> None:
        self.step = step
        self.inputs: Sequence[torch.Tensor] = ()
        self.graph: Any = None
        self.outputs: Any = None
        self.calls = self.replays = self.aside = 0
        if GPU and Captured.stream is None:
            Captured.stream = torch.cuda.Stream()
        Captured.made.append(self)

    def __call__(self, *batch: torch.Tensor) -> Any:
        if self.calls == 0:
            self.inputs = [torch.empty_like(tensor, device=DEVICE) for tensor in batch]
        self.calls += 1
        if [tensor.shape for tensor in batch] != [static.shape for static in self.inputs]:
            self.aside += 1
            return self.eagerly([tensor.to(DEVICE) for tensor in batch])
        for static, tensor in zip(self.inputs, batch):
            static.copy_(tensor, non_blocking=True)
        if not GPU or self.calls - self.aside <= WARM_UP:
            return self.eagerly(self.inputs)
        if self.graph is None:
            self.capture()
        self.graph.replay()
        self.replays += 1
        return self.outputs

    def eagerly(self, inputs: Sequence[torch.Tensor]) -> Any:
        if not GPU:
            return self.step(*inputs)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            result = self.step(*inputs)
        torch.cuda.current_stream().wait_stream(self.stream)
        return result

    def capture(self) -> None:
        self.graph = torch.cuda.CUDAGraph()
        # A loader's thread that pins memory goes on working during the capture.
        with torch.cuda.graph(self.graph, stream=self.stream, capture_error_mode="thread_local"):
            self.outputs = self.step(*self.inputs)

    def replay_ms(self) -> float:
        """The GPU's time of one replay, of several back to back."""
        times: list[float] = []
        for _ in range(7):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            for _ in range(10):
                self.graph.replay()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) / 10)
        return median(times)


class Stopwatch:
    """Seeds what scripts draw from, so that two runs of a script see the same data."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.losses: list[torch.Tensor] = []
        self.blocks_ms: list[float] = []
        self.iterations = self.in_block = 0
        self.began = self.block_began = 0.0
        self.replays: dict[int, int] = {}  # by the position in Captured.made, at the beginning
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)

    def step_done(self, loss: torch.Tensor) -> None:
        compared, timed, limit_s, block = self.settings[1:]
        if len(self.losses) < compared:
            self.losses.append(loss.detach().clone())
            if len(self.losses) == compared:
                self.resume()
                self.began = self.block_began
                self.replays = {at: each.replays for at, each in enumerate(Captured.made)}
            return
        self.iterations += 1
        self.in_block += 1
        if self.in_block < block:
            return
        synchronize()
        now = time.perf_counter()
        self.blocks_ms.append(1e3 * (now - self.block_began) / block)
        self.block_began, self.in_block = now, 0
        late = now - self.began > limit_s and len(self.blocks_ms) >= LEAST_BLOCKS
        if self.iterations >= timed or late:
            self.finish(now - self.began)

    def resume(self) -> None:
        """Begin a block here."""
        synchronize()
        self.block_began, self.in_block = time.perf_counter(), 0

    def finish(self, elapsed_s: float) -> None:
        """Write the result and end the process, loader and all."""
        graphs = [
            (each, each.replays - self.replays.get(at, 0)) for at, each in enumerate(Captured.made)
        ]
        replay_ms = None
        if graphs and all(replays for _, replays in graphs):
            replay_ms = sum(each.replay_ms() * n / self.iterations for each, n in graphs)
        result = {
            "device": torch.cuda.get_device_name() if GPU else "CPU",
            "torch": torch.__version__,
            "losses": [float(loss) for loss in self.losses],
            "iterations": self.iterations,
            "blocks_ms": self.blocks_ms,
            "overall_ms": 1e3 * elapsed_s / self.iterations,
            "replays": [replays for _, replays in graphs],
            "aside": [each.aside for each, _ in graphs],
            "replay_ms": replay_ms,
        }
        Path(self.settings.output).write_text(json.dumps(result))
        sys.stdout.flush()
        os._exit(0)


_watch = Stopwatch(Settings(*json.loads(os.environ[VARIABLE])))
step_done = _watch.step_done
resume = _watch.resume
