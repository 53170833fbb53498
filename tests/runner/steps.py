"""Steps on the CPU that are watched as a step on the GPU is: a graph here is a function."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from launchscope.model import Schedule, StepBoundary, VerifyResult
from launchscope.runner.child.capture.capture import LiveReplay
from launchscope.runner.child.capture.nvtx_ranges import NvtxRanges
from launchscope.runner.child.capture.state import DeviceState, OptimizerFlags
from launchscope.runner.child.events.events import NO_OBSERVER
from launchscope.runner.child.events.hooks import Hooks
from launchscope.runner.child.passes import Context
from launchscope.runner.child.passes.verify import VerifyPass
from launchscope.runner.protocol.folder import ChildFolder


class Graph:
    """Runs a function where a CUDA graph would replay."""

    captured: Callable[[], Any] | None = None

    def replay(self) -> None:
        if self.captured is not None:
            self.captured()

    def reset(self) -> None:
        self.captured = None


def context_of(folder: Path, model: Any, optimizer: Any = None, verify: int = 4) -> Context:
    optimizers = [] if optimizer is None else [optimizer]
    hooks = Hooks(torch, NO_OBSERVER)
    state = DeviceState(torch, [model], optimizers, {}, device="cpu")
    flags = OptimizerFlags([])  # there is no capturable optimizer on the CPU
    replay = LiveReplay(Graph(), state, flags, [])
    return Context(
        torch=torch,
        folder=ChildFolder(folder),
        schedule=Schedule(verify=verify),
        hooks=hooks,
        nvtx=NvtxRanges(),
        boundary=StepBoundary("period", ("forward",), ("Net",), "full_step"),
        on_gpu=False,
        side_stream=True,
        optimizers=optimizers,
        modules=[model],
        replay=replay,
    )


def verified(
    context: Context,
    step: Callable[[int], Any],
    frozen: Callable[[], Any],
    between: Callable[[int], Any] = lambda index: None,
) -> VerifyResult:
    """The verify pass over `step(0)`, the captured one, and the steps after it; one to warm up.

    `frozen()` does what a graph of `step(0)` would, on the tensors of that step. The captured
    step runs for real here, so its first replay is left out.
    """

    class Faked:
        graph = Graph()

        def begin(self) -> None: ...

        def end(self) -> None: ...

    step(0)  # an optimizer makes its state in its first step
    entry = VerifyPass()
    context.make_capture = Faked  # type: ignore[method-assign, assignment]
    entry.start(context)
    context.hooks.install()
    try:
        done, index = False, 0
        while not done:
            entry.begin()
            try:
                held = step(index)  # as a script holds on to its loss
            except StopIteration:  # it has no more batches
                break
            done = entry.end()
            Faked.graph.captured = frozen
            between(index)
            del held
            index += 1
        result = entry.finish(complete=done)
    finally:
        context.hooks.remove()
    assert isinstance(result, VerifyResult)
    return result
