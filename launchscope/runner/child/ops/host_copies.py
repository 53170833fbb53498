"""What stays on the host, and what is copied there, in a rehearsal, in which all is on the CPU.

What a GPU would have to copy is copied here too, so that the op is seen and counted. From then
on the copy counts as a tensor on the host, like everything computed from it alone. So does a
tensor that the step makes without a device (`torch.randint(n, (8,))`), if the script names
devices at all.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable, Iterable
from itertools import islice
from types import FrameType

from launchscope.runner.child.ops.blocking import HOST_COPY, SYNC
from launchscope.runner.child.ops.step_ops import HostTensors, StepStream
from launchscope.runner.child.ops.torch_modes import function_mode
from launchscope.runner.child.torch_types import (
    Args,
    Function,
    Kwargs,
    Mode,
    Optimizer,
    Tensor,
    Torch,
    Value,
)

_COPY = "aten._to_copy"  # what .cpu(), .to("cpu"), .tolist() and .numpy(force=True) run on a GPU
_CPU = r"""(torch\.device\(\s*)?(?P<quote>["'])cpu(:0)?(?P=quote)\s*[,)]"""
_NAMES_CPU = re.compile(
    rf"^\.to\(\s*({_CPU}|.*\bdevice\s*=\s*{_CPU.replace('quote', 'mark')})", re.S
)
# Functions that make a new tensor on the host unless a device is given.
_FACTORIES = ("arange", "as_tensor", "empty", "eye", "full", "linspace", "ones", "rand", "randint",
              "randn", "randperm", "tensor", "zeros")  # fmt: skip


def host_step_counts(torch: Torch, optimizers: Iterable[Optimizer]) -> set[int]:
    """Addresses of step counts, which stay on the host unless capturable or fused."""
    found = set()
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            if group.get("capturable") or group.get("fused"):
                continue
            for parameter in group["params"]:
                count = optimizer.state.get(parameter, {}).get("step")
                if isinstance(count, torch.Tensor):
                    found.add(count.untyped_storage().data_ptr())
    return found


def make_host_copy_mode(
    torch: Torch, stream: StepStream, on_device: Callable[[Tensor], bool], host: HostTensors
) -> Mode:
    """A TorchFunctionMode that records copies to the host and adds them to `host`."""
    tensor_class = torch.Tensor
    cpu, to, to_device = tensor_class.cpu, tensor_class.to, tensor_class.cuda
    tolist, numpy = tensor_class.tolist, tensor_class.numpy
    factories = {getattr(torch, name) for name in _FACTORIES} if host.devices_named else ()

    def copy(source: Tensor, func: Function, *args: Value, **kwargs: Value) -> Tensor:
        waits = not (kwargs.get("non_blocking") or (func is to and args[2:3] == (True,)))
        stream.block(_COPY, SYNC if waits else HOST_COPY, stream.line())
        result = func(source, *args, **kwargs)
        if result is source:  # on the CPU already
            result = source.to("cpu", copy=True)
        host.add(result)
        return result

    def on_call(func: Function, args: Args, kwargs: Kwargs) -> Value:
        source = args[0] if args else None
        caller = sys._getframe(2)
        if func in factories and _makes_on_host(torch, args, kwargs):
            host.making = True
            try:
                made = func(*args, **kwargs)
            finally:
                host.making = False
            host.add(made)
            return made
        forced = func is numpy and (bool(kwargs.get("force")) or args[1:] == (True,))
        if func is cpu or (func is to and _names_cpu(caller)):
            if on_device(source):
                return copy(source, func, *args[1:], **kwargs)
        elif func is to or func is to_device or kwargs.get("device") is not None:
            if isinstance(source, tensor_class):
                host.discard(source)  # it may well go to the device
        elif (func is tolist or forced) and on_device(source):
            args = (copy(args[0].detach(), cpu), *args[1:])
        return func(*args, **kwargs)

    return function_mode(on_call)


def _makes_on_host(torch: Torch, args: Args, kwargs: Kwargs) -> bool:
    """Whether a factory makes its tensor there: no device is given or set as the default, and
    no argument is a tensor."""
    from torch.utils import _device

    if kwargs.get("device") is not None or _device.CURRENT_DEVICE is not None:
        return False
    values = [*args, *kwargs.values()]
    values += [part for value in values if isinstance(value, list | tuple) for part in value]
    return not any(isinstance(value, torch.Tensor) for value in values)


def _names_cpu(caller: FrameType) -> bool:
    """Whether the call that the frame executes says `.to("cpu")` literally.

    A script that chooses its device says `.to(device)`, and chose the CPU only because there is
    no GPU here; with one, that is no copy to the host.
    """
    code, first = caller.f_code, caller.f_lineno
    if sys.version_info < (3, 11):
        source = linecache.getline(code.co_filename, first)
    else:
        begin, end, left, right = next(islice(code.co_positions(), caller.f_lasti // 2, None))
        if begin is None or end is None:
            return False
        lines = linecache.getlines(code.co_filename)[begin - 1 : end]
        if not lines:
            return False
        # Python counts columns in bytes.
        lines[-1] = lines[-1].encode()[:right].decode(errors="replace")
        lines[0] = lines[0].encode()[left:].decode(errors="replace")
        source = "".join(lines)
    return bool(_NAMES_CPU.match(source[max(source.rfind(".to("), 0) :]))
