"""Finds what a GPU would copy between host and device, in a rehearsal, where all is on the CPU.

A copy to the host is really made, so that the op is seen and counted. From then on its result is a
tensor on the host, like everything computed from it alone. So is a tensor that the step makes
without a device (`torch.randint(n, (8,))`), if the script names devices at all.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator

from launchscope.runner.child.facts.blocking import HOST_COPY, SYNC
from launchscope.runner.child.facts.patching import wrap
from launchscope.runner.child.facts.plain_values import parameters_with_state, tensors_in
from launchscope.runner.child.facts.source_lines import is_torch
from launchscope.runner.child.facts.step_ops import (
    HostTensors,
    StepStream,
    StreamRecorder,
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
from launchscope.runner.child.rehearsal.rehearsal import names_cpu, optimizers_as_on_cuda

_COPY = "aten._to_copy"  # what .cpu(), .to("cpu"), .tolist() and .numpy(force=True) run on a GPU
_OF_VALUES = ("tensor", "as_tensor")
_METHODS = ("to", "cpu", "cuda", "tolist", "numpy")
_ITEM = "aten._local_scalar_dense"
# What cuDNN computes in one call, and the CPU in one operation per step of the sequence.
_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_PACK = "_pack_padded_sequence"  # gives the sizes of the batches on the host


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
        undo.callback(wrap(dataloader._BaseDataLoaderIter, "__next__", recorder.around_batch))
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
        if name in _OF_VALUES and func is getattr(self.torch, name):
            on_device = kwargs.get("device") is not None and not names_cpu(caller)
            if on_device and not isinstance(args[0], self.torch.Tensor):
                self.stream.copy()
                self.stream.block(f"torch.{name}", HOST_COPY)
        elif name in _RECURRENT:
            return self.stream.as_one_op("aten._cudnn_rnn", run, args, kwargs)
        elif name in _METHODS and func is getattr(self.torch._C.TensorBase, name):
            forced = name == "tolist" or (name == "numpy" and (args[1:] or kwargs))
            if forced or name == "cpu" or (name == "to" and names_cpu(caller)):
                waits = not (kwargs.get("non_blocking") or args[2:3] == (True,))
                return run(self._on_host(args[0], waits), *args[1:], **kwargs)
            if name in ("to", "cuda") and not is_torch(caller.f_code.co_filename):
                self._to_device(name, args, kwargs)
        before, since = self.stream.blockers.copy(), len(self.stream.ops)
        result = run(*args, **kwargs)
        if name == _PACK:
            self.host.add(result[1])
        if name in ("to", "cuda") and result is not args[0]:
            self.stream.produced |= set(map(weak_storage, tensors_in(self.torch, result)))
        reads = [record for record in self.stream.blockers - before if record.op == _ITEM]
        if reads and not self._reads_on_cuda(func, args, kwargs):
            for record in reads:
                self.stream.blockers[record] = before[record]
            checks = slice(since, self.stream.last_read)  # what computed the values
            self.stream.device_ops -= len(self.stream.ops[checks])
            del self.stream.ops[checks]
        return result

    def _reads_on_cuda(self, func: Function, args: Args, kwargs: Kwargs) -> bool:
        """Whether a call reads a value of the device on CUDA, too, and not only in a check that the
        CPU makes; tried with tensors that have no memory."""
        from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
        from torch.utils._pytree import tree_map_only

        torch, mode = self.torch, FakeTensorMode()

        def fake(tensor: Tensor) -> Tensor:
            sizes, dtype = (tensor.shape, tensor.stride()), tensor.dtype
            where = torch.device("cuda", 0) if self.on_device(tensor) else tensor.device
            return FakeTensor(mode, torch.empty_strided(*sizes, dtype=dtype, device="meta"), where)

        try:
            with torch._C.DisableTorchFunction():
                args, kwargs = tree_map_only(torch.Tensor, fake, (args, kwargs))
                with mode:
                    func(*args, **kwargs)
        except Exception:  # most often because it reads one
            return True
        return False

    def _on_host(self, source: Tensor, waits: bool) -> Tensor:
        """The tensor, or a copy if it is on the device."""
        if not self.on_device(source):
            return source
        self.stream.block(_COPY, SYNC if waits else HOST_COPY)
        self.stream.copies += 1
        copy = source.to("cpu", copy=True)
        self.host.add(copy)
        return copy

    def _to_device(self, name: str, args: Args, kwargs: Kwargs) -> None:
        device = args[1] if len(args) > 1 else kwargs.get("device")
        names = name == "cuda" or isinstance(device, str | int | self.torch.device)
        if names and self.host.holds(args[0]):
            self.stream.copy()
            if not (kwargs.get("non_blocking") or args[2:3] == (True,)):
                self.stream.block(_COPY, HOST_COPY)
