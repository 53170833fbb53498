"""Counts the device ops of a piece of code in this very process, as a rehearsal would."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from launchscope.model import SourceLine
from launchscope.runner.child.ops.host_copies import HostTensors
from launchscope.runner.child.ops.rehearsal import foreach_as_on_cuda
from launchscope.runner.child.ops.step_ops import StepStream, holds_one_of, make_dispatch_mode

__all__ = ["DeviceOps"]


class _NoHooks:
    """What the op stream asks of the hooks: here no line of a backward is known beforehand."""

    backward_where: SourceLine | None = None


class DeviceOps:
    """A context manager; afterwards `total` ops ran, `rows` of them by name and line.

    Views and allocations do not count, nor does what optimizers keep on the host; optimizers
    and gradient clipping take the multi-tensor path that they would take on CUDA. Compiled code
    runs eagerly inside, and stays eager in this process.
    """

    def __init__(self, torch: Any):
        self._torch = torch
        self._stream = StepStream()
        self._host: set[int] = set()
        self._restore: Any = None
        self._hook: Any = None
        self._mode: Any = None

    def __enter__(self) -> DeviceOps:
        torch = self._torch
        optimizers = sys.modules.get("torch.optim.optimizer")
        if optimizers is not None:
            self._hook = optimizers.register_optimizer_step_pre_hook(self._note_host_state)
        self._restore = foreach_as_on_cuda()
        self._mode = make_dispatch_mode(
            torch, self._stream, _NoHooks(), self._counts, HostTensors()
        )
        self._mode.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._mode.__exit__(*exception)
        self._restore()
        if self._hook is not None:
            self._hook.remove()

    @property
    def total(self) -> int:
        return self._stream.device_ops

    @property
    def rows(self) -> Counter[tuple[str, SourceLine | None]]:
        return Counter((record.op, record.where) for record in self._stream.ops)

    def _counts(self, tensor: Any) -> bool:
        return tensor.ndim > 0 or not holds_one_of(tensor, self._host)

    def _note_host_state(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """Step counts stay on the host unless the optimizer is capturable or fused."""
        for group in optimizer.param_groups:
            if group.get("capturable") or group.get("fused"):
                continue
            for parameter in group["params"]:
                count = optimizer.state.get(parameter, {}).get("step")
                if isinstance(count, self._torch.Tensor):
                    self._host.add(count.untyped_storage().data_ptr())
