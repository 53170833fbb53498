"""Runs inside a script of the corpus: times its iterations, and captures the step of an edited one.

The edits in `edits/` insert calls to this module into a copy of the script. The first iterations
are compared: each one's loss is kept. Then by_hand.py, which started the script, tells it when to
run a window: some iterations that are left out, and a block that is timed, with a synchronization
at both ends. At the end the result is written to the file that by_hand.py named.
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
GO, DONE = b"g", b"d"


class Settings(NamedTuple):
    """`compared` counts iterations; after them a window is run for each GO read from `turn`, and
    DONE is written to `done` before the first and after each. Without `turn`, the script ends
    after the compared iterations, and a step that could be captured stays eager."""

    output: str
    compared: int
    block: int
    lead: int
    turn: int | None
    done: int | None


SETTINGS = Settings(*json.loads(os.environ[VARIABLE]))
GRAPHS = SETTINGS.turn is not None


class Captured:
    """A step as a CUDA graph, made with `torch.cuda.graph` as docs/get-started.md shows it.

    The first calls run the step eagerly on a side stream. The next call captures it, and from then
    on each call copies its tensors into the static inputs and replays. What a replay returns is
    written again by the next one. A batch of another shape runs eagerly.
    """

    made: ClassVar[list[Captured]] = []
    stream: ClassVar[Any] = None  # one for all, because steps may share parameters

    def __init__(self, step: Callable[..., Any]) -> None:
        self.step = step
        self.inputs: Sequence[torch.Tensor] = ()
        self.graph: Any = None
        self.outputs: Any = None
        self.calls = self.replays = self.aside = 0
        if Captured.stream is None:
            Captured.stream = torch.cuda.Stream()
        Captured.made.append(self)

    def __call__(self, *batch: torch.Tensor) -> Any:
        if self.calls == 0:
            self.inputs = [torch.empty_like(tensor, device="cuda") for tensor in batch]
        self.calls += 1
        if [tensor.shape for tensor in batch] != [static.shape for static in self.inputs]:
            self.aside += 1
            return self.eagerly([tensor.to("cuda") for tensor in batch])
        for static, tensor in zip(self.inputs, batch):
            static.copy_(tensor, non_blocking=True)
        if not GRAPHS or self.calls - self.aside <= WARM_UP:
            return self.eagerly(self.inputs)
        self.replays += 1
        if self.graph is None:
            self.capture()
        self.graph.replay()
        return self.outputs

    def eagerly(self, inputs: Sequence[torch.Tensor]) -> Any:
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
        """The time of one replay, of several back to back."""
        times: list[float] = []
        for _ in range(7):
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(10):
                self.graph.replay()
            torch.cuda.synchronize()
            times.append(1e3 * (time.perf_counter() - began) / 10)
        return median(times)


class Stopwatch:
    """Seeds what scripts draw from, so that two runs of a script see the same data."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.losses: list[torch.Tensor] = []
        self.blocks_ms: list[float] = []
        self.iterations = self.in_window = 0
        self.began = 0.0
        self.replays: dict[int, int] = {}  # by the position in Captured.made, before the windows
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)

    def step_done(self, loss: torch.Tensor) -> None:
        if len(self.losses) < self.settings.compared:
            self.losses.append(loss.detach().clone())
            if len(self.losses) == self.settings.compared:
                self.replays = {at: each.replays for at, each in enumerate(Captured.made)}
                self.next_window()
            return
        self.iterations += 1
        self.in_window += 1
        if self.in_window == self.settings.lead:
            self.start_clock()
        if self.in_window == self.settings.lead + self.settings.block:
            torch.cuda.synchronize()
            self.blocks_ms.append(1e3 * (time.perf_counter() - self.began) / self.settings.block)
            self.next_window()

    def start_clock(self) -> None:
        torch.cuda.synchronize()
        self.began = time.perf_counter()

    def next_window(self) -> None:
        """Wait for the turn to run a window, or end the script."""
        torch.cuda.synchronize()
        self.in_window = 0
        if self.settings.turn is None or self.settings.done is None:
            self.finish()
            return
        os.write(self.settings.done, DONE)
        if os.read(self.settings.turn, 1) != GO:
            self.finish()
        if not self.settings.lead:
            self.start_clock()

    def resume(self) -> None:
        """Begin the block here, in place of what is left out."""
        self.in_window = self.settings.lead
        self.start_clock()

    def finish(self) -> None:
        """Write the result and end the process, loader and all."""
        graphs = [
            (each, each.replays - self.replays.get(at, 0)) for at, each in enumerate(Captured.made)
        ]
        replay_ms = None
        if used := [(each, replays) for each, replays in graphs if replays and self.iterations]:
            replay_ms = sum(each.replay_ms() * n / self.iterations for each, n in used)
        result = {
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "losses": [float(loss.float().mean()) for loss in self.losses],
            "iterations": self.iterations,
            "blocks_ms": self.blocks_ms,
            "replays": [replays for _, replays in graphs],
            "aside": [each.aside for each, _ in graphs],
            "replay_ms": replay_ms,
        }
        Path(self.settings.output).write_text(json.dumps(result))
        sys.stdout.flush()
        os._exit(0)


_watch = Stopwatch(SETTINGS)
step_done = _watch.step_done
resume = _watch.resume
