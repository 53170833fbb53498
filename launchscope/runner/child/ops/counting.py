"""Counts the device ops of a piece of code in this very process, as a rehearsal would."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from launchscope.runner.child.ops.host_copies import host_step_counts
from launchscope.runner.child.ops.rehearsal import foreach_as_on_cuda
from launchscope.runner.child.ops.step_ops import HostTensors, StepStream, make_dispatch_mode
from launchscope.runner.child.torch_types import Args, Kwargs, Optimizer, Torch


@contextlib.contextmanager
def device_ops(torch: Torch) -> Iterator[StepStream]:
    """Records the ops that run inside; views, allocations and host state of optimizers apart.

    Optimizers and gradient clipping take the multi-tensor path that they would take on CUDA.
    Compiled code runs eagerly inside, and stays eager in this process.
    """
    stream, host = StepStream(), HostTensors()

    def before_step(optimizer: Optimizer, args: Args, kwargs: Kwargs) -> None:
        host.step_counts |= host_step_counts(torch, [optimizer])

    with contextlib.ExitStack() as undo:
        optimizers = sys.modules.get("torch.optim.optimizer")
        if optimizers is not None:
            undo.callback(optimizers.register_optimizer_step_pre_hook(before_step).remove)
        undo.enter_context(foreach_as_on_cuda())
        undo.enter_context(make_dispatch_mode(torch, stream, host.on_device, host))
        yield stream
