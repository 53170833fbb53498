"""Counts the device ops of a piece of code in this process, as a rehearsal would."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from launchscope.runner.child.facts.patching import put_in_place, within
from launchscope.runner.child.facts.source_lines import note_torch
from launchscope.runner.child.facts.step_ops import HostTensors, StepStream, make_dispatch_mode
from launchscope.runner.child.facts.torch_types import Args, Kwargs, Mode, Optimizer, Torch
from launchscope.runner.child.rehearsal.host_copies import host_step_counts
from launchscope.runner.child.rehearsal.rehearsal import optimizers_as_on_cuda


@contextlib.contextmanager
def device_ops(torch: Torch) -> Iterator[list[StepStream]]:
    """Records the ops that run inside; views, allocations and host state of optimizers excluded.

    Those of threads that start inside are streams of their own. Optimizers and gradient clipping
    are counted as on CUDA, where they update many tensors at once. Compiled code runs eagerly
    inside.
    """
    note_torch(torch)
    streams: list[StepStream] = []
    host = HostTensors()

    def recording() -> Mode:
        streams.append(StepStream())
        return make_dispatch_mode(torch, streams[-1], host.on_device, host)

    def before_step(optimizer: Optimizer, args: Args, kwargs: Kwargs) -> None:
        host.step_counts |= host_step_counts(torch, [optimizer])

    with contextlib.ExitStack() as undo:
        optimizers = sys.modules["torch.optim.optimizer"]  # torch.optim hides it
        undo.callback(optimizers.register_optimizer_step_pre_hook(before_step).remove)
        undo.enter_context(optimizers_as_on_cuda())
        undo.enter_context(_around_threads(recording))
        undo.enter_context(recording())
        yield streams


@contextlib.contextmanager
def _around_threads(make: Callable[[], AbstractContextManager[object]]) -> Iterator[None]:
    """A context of its own, which `make` gives, around each thread that starts inside."""
    start: Any = threading.Thread.start

    def start_in_context(thread: Any) -> None:
        thread.run = within(make, thread.run)
        start(thread)

    take_back = put_in_place(threading.Thread, "start", start_in_context)
    try:
        yield
    finally:
        take_back()
