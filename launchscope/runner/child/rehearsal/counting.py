"""Counts the device ops of a piece of code in this process, as a rehearsal would."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from launchscope.runner.child.facts.source_lines import note_torch
from launchscope.runner.child.facts.step_ops import HostTensors, StepStream, make_dispatch_mode
from launchscope.runner.child.facts.torch_types import Args, Kwargs, Optimizer, Torch
from launchscope.runner.child.rehearsal.host_copies import host_step_counts
from launchscope.runner.child.rehearsal.rehearsal import optimizers_as_on_cuda


@contextlib.contextmanager
def device_ops(torch: Torch) -> Iterator[StepStream]:
    """Records the ops that this thread runs inside, without views, allocations and host state of
    optimizers. Optimizers and gradient clipping are counted as on CUDA, where they update many
    tensors at once. Compiled code runs eagerly inside.
    """
    note_torch(torch)
    stream, host = StepStream(), HostTensors()

    def before_step(optimizer: Optimizer, args: Args, kwargs: Kwargs) -> None:
        host.step_counts |= host_step_counts(torch, [optimizer])

    with contextlib.ExitStack() as undo:
        optimizers = sys.modules["torch.optim.optimizer"]  # torch.optim hides it
        undo.callback(optimizers.register_optimizer_step_pre_hook(before_step).remove)
        undo.enter_context(optimizers_as_on_cuda())
        undo.enter_context(make_dispatch_mode(torch, stream, host.on_device, host))
        yield stream
