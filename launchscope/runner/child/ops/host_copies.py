"""What stays on the host, and what is copied there, in a rehearsal, where all is on the CPU.

What a GPU would have to copy is copied here too, so that its op is seen and counted as there.
The copy counts as a tensor of the host from then on, and so does what is computed of it alone.
So does a tensor that the step makes without naming a device (`torch.randint(n, (8,))`), where the
script names devices at all.
"""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Any

from launchscope.runner.child.ops.blocking import HOST_COPY, SYNC
from launchscope.runner.child.ops.storages import weak_storage
from launchscope.runner.child.source_lines import user_line

if TYPE_CHECKING:
    from launchscope.runner.child.ops.step_ops import KnowsBackward, StepStream

_COPY = "aten._to_copy"  # what .cpu(), .to("cpu"), .tolist() and .numpy(force=True) run on a GPU
_CPU = r"""(torch\.device\(\s*)?(?P<quote>["'])cpu(:0)?(?P=quote)\s*[,)]"""
_NAMES_CPU = re.compile(
    rf"^\.to\(\s*({_CPU}|.*\bdevice\s*=\s*{_CPU.replace('quote', 'mark')})", re.S
)
# Functions that put a new tensor on the host unless they are told a device.
_MAKERS = ("arange", "as_tensor", "empty", "eye", "full", "linspace", "ones", "rand", "randint",
           "randn", "randperm", "tensor", "zeros")  # fmt: skip


class HostTensors:
    """The memory that would be on the host beside a GPU, as far as the inspected steps tell."""

    def __init__(self, *, devices_named: bool = False) -> None:
        self._storages: set[Any] = set()
        self.devices_named = devices_named  # by the script: else nothing tells host from device
        self.making = False  # a tensor of the host is being made

    def holds(self, tensor: Any) -> bool:
        return bool(self._storages) and weak_storage(tensor) in self._storages

    def add(self, tensor: Any) -> None:
        ref = weak_storage(tensor)
        if ref is not None:
            self._storages.add(ref)

    def discard(self, tensor: Any) -> None:
        if self._storages:
            self._storages.discard(weak_storage(tensor))


def make_host_copy_mode(
    torch: Any,
    stream: StepStream,
    hooks: KnowsBackward,
    on_device: Callable[[Any], bool],
    host: HostTensors,
) -> Any:
    """A TorchFunctionMode that notes what copies to the host, and adds the copy to `host`."""
    from torch.overrides import TorchFunctionMode

    tensor_class = torch.Tensor
    cpu, to, to_device = tensor_class.cpu, tensor_class.to, tensor_class.cuda
    tolist, numpy = tensor_class.tolist, tensor_class.numpy
    makers = _makers(torch) if host.devices_named else frozenset()

    def copied(source: Any, func: Any, call: Any, *args: Any, **kwargs: Any) -> Any:
        waits = not (kwargs.get("non_blocking") or (func is to and args[2:3] == (True,)))
        where = user_line(call) or hooks.backward_where
        stream.block(_COPY, SYNC if waits else HOST_COPY, where)
        result = func(source, *args, **kwargs)
        if result is source:  # on the CPU already
            result = source.to("cpu", copy=True)
        host.add(result)
        return result

    def forced(args: Any, kwargs: Any) -> bool:
        return bool(kwargs.get("force")) or args[1:] == (True,)

    class Recorder(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            source = args[0] if args else None
            call = sys._getframe(1)
            if func in makers and _made_on_host(torch, args, kwargs):
                host.making = True
                try:
                    made = func(*args, **kwargs)
                finally:
                    host.making = False
                host.add(made)
                return made
            if func is cpu or (func is to and _names_cpu(call)):
                if on_device(source):
                    return copied(source, func, call, *args[1:], **kwargs)
            elif func is to or func is to_device or kwargs.get("device") is not None:
                if isinstance(source, tensor_class):
                    host.discard(source)  # it may well go to the device
            elif (func is tolist or (func is numpy and forced(args, kwargs))) and on_device(source):
                args = (copied(args[0].detach(), cpu, call), *args[1:])
            return func(*args, **kwargs)

    return Recorder()


def _makers(torch: Any) -> frozenset[Any]:
    return frozenset(getattr(torch, name) for name in _MAKERS)


def _made_on_host(torch: Any, args: Any, kwargs: Any) -> bool:
    """Whether a call makes its tensor there: no device is named, none is the default, and no
    tensor is among what it is made of."""
    from torch.utils import _device

    if kwargs.get("device") is not None or _device.CURRENT_DEVICE is not None:
        return False
    values = [*args, *kwargs.values()]
    values += [part for value in values if isinstance(value, list | tuple) for part in value]
    return not any(isinstance(value, torch.Tensor) for value in values)


def _names_cpu(call: Any) -> bool:
    """Whether the call that the frame is at says `.to("cpu")` in so many words.

    A script that chooses its device says `.to(device)`, and chose the CPU only as there is no
    GPU here: with one, that is no copy to the host.
    """
    code, first = call.f_code, call.f_lineno
    if sys.version_info < (3, 11):
        said = linecache.getline(code.co_filename, first)
    else:
        begin, end, left, right = next(islice(code.co_positions(), call.f_lasti // 2, None))
        if begin is None or end is None:
            return False
        lines = linecache.getlines(code.co_filename)[begin - 1 : end]
        if not lines:
            return False
        lines[-1] = _bytes_of(lines[-1], 0, right)
        lines[0] = _bytes_of(lines[0], left, None)
        said = "".join(lines)
    return bool(_NAMES_CPU.match(said[max(said.rfind(".to("), 0) :]))


def _bytes_of(text: str, first: int | None, end: int | None) -> str:
    """Part of a line by columns, which Python counts in bytes."""
    return text.encode()[first:end].decode(errors="replace")
