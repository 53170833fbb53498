"""Finds what a GPU would copy between host and device, in a rehearsal, where all is on the CPU.

A copy to the host is really made, so that the op is seen and counted. From then on its result is a
tensor on the host, like everything computed from it alone. So is a tensor that the step makes
without a device (`torch.randint(n, (8,))`), if the script names devices at all.
"""

from __future__ import annotations

import contextlib
import linecache
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType

from launchscope.runner.child.facts.blocking import HOST_COPY, SYNC
from launchscope.runner.child.facts.patching import wrap
from launchscope.runner.child.facts.plain_values import parameters_with_state, tensors_in
from launchscope.runner.child.facts.source_lines import is_torch
from launchscope.runner.child.facts.step_ops import (
    HostTensors,
    StepStream,
    StreamRecorder,
    copies_to_gpu,
    weak_storage,
)
from launchscope.runner.child.facts.torch_modes import function_mode
from launchscope.runner.child.facts.torch_types import (
    Args,
    Function,
    Kwargs,
    StorageRef,
    Tensor,
    Torch,
    Value,
)
from launchscope.runner.child.rehearsal.rehearsal import optimizers_as_on_cuda

_COPY = "aten._to_copy"  # what .cpu(), .to("cpu"), .tolist() and .numpy(force=True) run on a GPU
_METHODS = ("to", "cpu", "cuda", "tolist", "numpy")
# Functions that make a new tensor on the host unless a device is given.
_FACTORIES = ("arange", "as_tensor", "empty", "eye", "full", "linspace", "ones", "rand", "randint",
              "randn", "randperm", "tensor", "zeros")  # fmt: skip
# In the line of a call, or behind it: in a script that chooses its device, `.to(device)` copies to
# the host only without a GPU.
_NAMES_CPU = re.compile(r"""\.to\([^)]*["']cpu(:0)?["']""")
# `.to(x.device)`: it follows another tensor, which is where this one is already.
_FOLLOWS = re.compile(r"\.to\(\s*(device\s*=\s*)?[\w.\[\]]+\.device\b")


def host_step_counts(torch: Torch, optimizers: Iterable[Value]) -> set[StorageRef]:
    """The step counts of optimizers that keep them on the host."""
    counts: list[Tensor] = [
        state.get("step")
        for optimizer in optimizers
        for group, _, state in parameters_with_state(optimizer)
        if not (group.get("capturable") or group.get("fused"))
    ]
    return {weak_storage(count) for count in counts if isinstance(count, torch.Tensor)} - {None}


@contextlib.contextmanager
def host_copies(
    torch: Torch, stream: StepStream, on_device: Callable[[Tensor], bool], host: HostTensors
) -> Iterator[None]:
    """Inside, copies to the host are recorded, and added to `host`, and those to the device that a
    line of the script asks for. Optimizers run as on CUDA."""
    import torch.utils.data.dataloader as dataloader

    recorder = _HostCopies(torch, stream, on_device, host)
    with function_mode(recorder.on_call), optimizers_as_on_cuda(), contextlib.ExitStack() as undo:
        undo.callback(wrap(torch._tensor_str, "_str", recorder.around_print))
        if host.devices_named:
            batches = dataloader._BaseDataLoaderIter
            undo.callback(wrap(batches, "__next__", recorder.around_batch))
        yield


class _HostCopies(StreamRecorder):
    def around_print(self, original: Function) -> Function:
        """A printed tensor is read, which shows no op to any mode."""

        def text(tensor: Tensor, *args: Value, **kwargs: Value) -> Value:
            if self.on_device(tensor):
                self.stream.block("torch.Tensor.__repr__", SYNC)
            return original(tensor, *args, **kwargs)

        return text

    def around_batch(self, original: Function) -> Function:
        """What a data loader delivers is on the host."""

        def batch(loader: Value) -> Value:
            values = original(loader)
            for tensor in tensors_in(self.torch, values):
                self.host.add(tensor)
            return values

        return batch

    def on_call(self, func: Function, run: Function, args: Args, kwargs: Kwargs) -> Value:
        name, caller = getattr(func, "__name__", ""), sys._getframe(3)
        if name in _FACTORIES and func is getattr(self.torch, name):
            if self._makes_on_host(args, kwargs):
                return self.host.made(run, args, kwargs)
            if kwargs.get("device") is not None and not is_torch(caller.f_code.co_filename):
                self._made_on_device(func, args, kwargs)
        elif name in _METHODS and func is getattr(self.torch._C.TensorBase, name):
            forced = name == "tolist" or (name == "numpy" and (args[1:] or kwargs))
            if forced or name == "cpu" or (name == "to" and _NAMES_CPU.search(_line(caller))):
                waits = not (kwargs.get("non_blocking") or args[2:3] == (True,))
                return run(self._on_host(args[0], waits), *args[1:], **kwargs)
            if name in ("to", "cuda") and not is_torch(caller.f_code.co_filename):
                self._to_device(name, args, kwargs, caller)
        return run(*args, **kwargs)

    def _on_host(self, source: Tensor, waits: bool) -> Tensor:
        """The tensor, or a copy if it is on the device."""
        if not self.on_device(source):
            return source
        self.stream.block(_COPY, SYNC if waits else HOST_COPY)
        self.stream.copies += 1
        copy = source.to("cpu", copy=True)
        self.host.add(copy)
        return copy

    def _made_on_device(self, func: Function, args: Args, kwargs: Kwargs) -> None:
        torch, stream = self.torch, self.stream
        of_values = func is torch.tensor or func is torch.as_tensor
        if of_values and not (args and isinstance(args[0], torch.Tensor)):
            stream.copy()
            if copies_to_gpu(torch, func, args, kwargs):
                stream.block(f"torch.{func.__name__}", HOST_COPY)

    def _to_device(self, name: str, args: Args, kwargs: Kwargs, caller: FrameType) -> None:
        source, device = args[0], args[1] if len(args) > 1 else kwargs.get("device")
        named = isinstance(device, str | int | self.torch.device)
        moves = name == "cuda" or (named and not _FOLLOWS.search(_line(caller)))
        if moves and self._is_on_host(source):
            self.stream.copy()
        if name == "cuda" or device is not None:
            self.host.discard(source)  # it may well go to the device

    def _is_on_host(self, source: Tensor) -> bool:
        """Whether nothing put it on the device: it was not copied yet, no op of the device has
        made it, and it does not belong to the model."""
        host, stream, storage = self.host, self.stream, weak_storage(source)
        known = storage in host.arrived or storage in stream.produced
        if (known and not host.holds(source)) or source.requires_grad:
            return False
        part = storage, source.storage_offset()
        is_new = part not in stream.copied
        stream.copied.add(part)
        return is_new

    def _makes_on_host(self, args: Args, kwargs: Kwargs) -> bool:
        """Whether a factory gets neither a device, of its own or by default, nor a tensor."""
        # What the script has set; torch loads the module with the first one.
        default = getattr(sys.modules.get("torch.utils._device"), "CURRENT_DEVICE", None)
        given = kwargs.get("device"), default, next(tensors_in(self.torch, (args, kwargs)), None)
        return self.host.devices_named and all(one is None for one in given)


def _line(caller: FrameType) -> str:
    return linecache.getline(caller.f_code.co_filename, caller.f_lineno or 0)
