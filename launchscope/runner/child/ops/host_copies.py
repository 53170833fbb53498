"""Finds what a GPU would copy to the host, in a rehearsal, where everything is on the CPU.

Such a copy is made here too, so that the op is seen and counted. From then on it counts as a
tensor on the host, like everything computed from it alone. So does a tensor that the step makes
without a device (`torch.randint(n, (8,))`), if the script names devices at all.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from types import FrameType

from launchscope.runner.child.code_owner import is_torch
from launchscope.runner.child.hooks.patching import is_replaced, put_in_place
from launchscope.runner.child.ops.blocking import HOST_COPY, SYNC
from launchscope.runner.child.ops.step_ops import HostTensors, StepStream, weak_storage
from launchscope.runner.child.ops.torch_modes import function_mode, without_modes_of_script
from launchscope.runner.child.plain_values import (
    computes_itself,
    parameters_with_state,
    tensors_in,
    values_of,
)
from launchscope.runner.child.source_lines import source_of
from launchscope.runner.child.torch_types import (
    Args,
    Function,
    Kwargs,
    Mode,
    StorageRef,
    Tensor,
    Torch,
    Value,
)

_COPY = "aten._to_copy"  # what .cpu(), .to("cpu"), .tolist() and .numpy(force=True) run on a GPU
_CPU = r"""(torch\.device\(\s*)?(?P<quote>["'])cpu(:0)?(?P=quote)\s*[,)]"""
_NAMES_CPU = re.compile(
    rf"^\.to\(\s*({_CPU}|.*\bdevice\s*=\s*{_CPU.replace('quote', 'mark')})", re.S
)
# `.to(x.device)`: it follows another tensor, which is where this one is already.
_FOLLOWS = re.compile(r"^\.to\(\s*(device\s*=\s*)?[\w.\[\]]+\.device\b")
# Of such a tensor the memory says too little; `has_names` is gone from newer versions of torch.
_MORE_THAN_MEMORY = "is_conj", "is_neg", "_is_zerotensor", "has_names"
# Functions that make a new tensor on the host unless a device is given.
_FACTORIES = ("arange", "as_tensor", "empty", "eye", "full", "linspace", "ones", "rand", "randint",
              "randn", "randperm", "tensor", "zeros")  # fmt: skip


def host_step_counts(torch: Torch, optimizers: Iterable[Value]) -> set[StorageRef]:
    """The step counts of optimizers that keep them on the host."""
    counts: list[Tensor] = [
        state.get("step")
        for optimizer in optimizers
        for group, _, state in parameters_with_state(optimizer)
        if not (group.get("capturable") or group.get("fused"))
    ]
    return {weak_storage(count) for count in counts if isinstance(count, torch.Tensor)} - {None}


def batches_on_host(torch: Torch, host: HostTensors) -> AbstractContextManager[None]:
    """Adds the tensors that data loaders deliver to `host`."""
    import torch.utils.data.dataloader as dataloader

    def add(args: Args, batch: Value) -> None:
        for value in tensors_in(torch, batch):
            host.add(value)

    return _noting(dataloader._BaseDataLoaderIter, "__next__", add, host)


def prints_as_syncs(
    torch: Torch, stream: StepStream, on_device: Callable[[Tensor], bool], host: HostTensors
) -> AbstractContextManager[None]:
    """Records that tensors on the device are printed, which shows no op to any mode."""

    def add(args: Args, text: Value) -> None:
        if on_device(args[0]):
            stream.block("torch.Tensor.__repr__", SYNC, stream.place())

    return _noting(torch._tensor_str, "_str", add, host)


@contextlib.contextmanager
def _noting(
    owner: Value, name: str, note: Callable[[Args, Value], None], host: HostTensors
) -> Iterator[None]:
    """Inside, `note` gets the arguments and the result of each call of a function of torch."""
    if is_replaced(owner, name):
        yield
        return
    original, notes = getattr(owner, name), [note]

    def called(*args: Value, **kwargs: Value) -> Value:
        result = original(*args, **kwargs)
        for note in notes:
            try:
                note(args, result)
            except Exception as error:
                host.error = error
        return result

    undo = put_in_place(owner, name, called)
    try:
        yield
    finally:
        notes.clear()  # whoever keeps `called` does not keep the tensors
        undo()


def make_host_copy_mode(
    torch: Torch, stream: StepStream, on_device: Callable[[Tensor], bool], host: HostTensors
) -> Mode:
    """A TorchFunctionMode that records copies to the host, which it adds to `host`, and those to
    the device that a line of the script asks for: `.to(device)`, `.cuda()`, `torch.tensor(x,
    device=device)`.
    """
    tensor_class = torch.Tensor
    base = torch._C.TensorBase  # in `tensor_class` the script may have its own
    cpu, to, to_device, tolist, numpy = base.cpu, base.to, base.cuda, base.tolist, base.numpy
    plain = tensor_class, torch.nn.Parameter  # another class may run code of its own
    # By id: a function of the script is not asked for its hash.
    factories = {id(getattr(torch, name)) for name in _FACTORIES} if host.devices_named else ()

    def copy(
        source: Tensor, func: Function, run: Function, *args: Value, **kwargs: Value
    ) -> Tensor:
        waits = not (kwargs.get("non_blocking") or (func is to and args[2:3] == (True,)))
        stream.block(_COPY, SYNC if waits else HOST_COPY, stream.place())
        stream.copies += 1
        result = run(source, *args, **kwargs)
        # On the CPU already; to copy a tensor of a class that computes itself calls that class.
        if result is source and not computes_itself(torch, source):
            if not source.is_mkldnn:  # no GPU has these, and none can be copied so
                with without_modes_of_script(), torch._C.DisableTorchFunctionSubclass():
                    to(source, "cpu", copy=True)  # what a GPU would run
            result = on_same_memory(source)
        if result is not source:
            host.add(result)
        return result

    def on_same_memory(source: Tensor) -> Tensor:
        """A tensor with a storage of its own that sees and makes the same changes, and is the same
        result to autograd; where there is none, the same tensor."""
        with_gradients = source.requires_grad
        if with_gradients and source.is_leaf:
            return source
        if type(source) is not tensor_class or source.__dict__:
            return source
        if source.is_quantized or any(
            getattr(source, form)() for form in _MORE_THAN_MEMORY if hasattr(base, form)
        ):
            return source
        level = torch.autograd.forward_ad._current_level
        if level >= 0 or torch._C._functorch.peek_interpreter_stack() is not None:
            return source  # it may have a tangent, or stand for the tensor that a transform has
        try:
            storage = source.untyped_storage()
            if storage.is_shared():  # with other processes, to which nothing else may go
                return source
            with (
                without_modes_of_script(),
                host.recording_nothing(),
                torch._C._InferenceMode(base.is_inference(source)),
            ):
                whole = host.same_memory(torch, storage)
                part = torch._C._VariableFunctions.empty(0, dtype=source.dtype, device="cpu")
                offset, stride = base.storage_offset(source), base.stride(source)
                part = base.set_(part, whole, offset, source.shape, stride)
                return _as_result(torch, source, part) if with_gradients else part
        except (RuntimeError, NotImplementedError):  # a layout without a storage
            return source

    def goes_to_device(
        func: Function, source: Value, args: Args, kwargs: Kwargs, caller: FrameType
    ) -> bool:
        device = args[1] if len(args) > 1 else kwargs.get("device")
        named = isinstance(device, (str, int, torch.device))
        if func is to and (not named or _FOLLOWS.match(_call_text(caller))):
            return False
        return (func is to or func is to_device) and is_on_host(source)

    def is_on_host(source: Tensor) -> bool:
        """Whether nothing put it on the device: it was not copied yet, no op of the device has
        made it, and it does not belong to the model."""
        storage = weak_storage(source)
        known = storage in host.arrived or storage in stream.produced
        if (known and not host.holds(source)) or source.requires_grad:
            return False
        part = storage, source.storage_offset()
        if part in stream.copied:
            return False
        stream.copied.add(part)
        return True

    def on_call(func: Function, run: Function, args: Args, kwargs: Kwargs) -> Value:
        source = args[0] if args else None
        caller = sys._getframe(3)
        if id(func) in factories and _makes_on_host(torch, args, kwargs):
            return host.made(run, args, kwargs)
        forced = func is numpy and (bool(kwargs.get("force")) or args[1:] == (True,))
        if func is cpu or (func is to and _names_cpu(caller)):
            if on_device(source):
                return copy(source, func, run, *args[1:], **kwargs)
        elif func is to or func is to_device or kwargs.get("device") is not None:
            by_script = not is_torch(caller.f_code.co_filename)
            if isinstance(source, torch.Tensor):
                if by_script and goes_to_device(func, source, args, kwargs, caller):
                    stream.copy(stream.line())
                host.discard(source)  # it may well go to the device
            elif by_script and (func is torch.tensor or func is torch.as_tensor):
                stream.copy(stream.line())
        elif (func is tolist or forced) and type(source) in plain and on_device(source):
            with without_modes_of_script():
                values = base.detach(args[0])
            args = (copy(values, cpu, cpu), *args[1:])
        return run(*args, **kwargs)

    return function_mode(on_call)


def _as_result(torch: Torch, source: Tensor, same: Tensor) -> Tensor:
    """A tensor on the memory of `same` to which gradients come as to `source`, a result that has
    them: torch makes one as it gives back what a function has saved. An operation in between would
    add up the gradients of `source` in another order."""
    enabled = torch._C.is_grad_enabled()
    torch._C._autograd._push_saved_tensors_default_hooks(lambda _: None, lambda _: same)
    try:
        torch._C._set_grad_enabled(True)
        return _saving(torch).apply(source).grad_fn.saved_tensors[0]
    finally:
        torch._C._set_grad_enabled(enabled)
        torch._C._autograd._pop_saved_tensors_default_hooks()


@functools.cache
def _saving(torch: Torch) -> Value:
    class Saving(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(function: Value, source: Tensor) -> Tensor:
            function.save_for_backward(source)
            return torch._C._VariableFunctions.empty(0, device="cpu")

    return Saving


def _makes_on_host(torch: Torch, args: Args, kwargs: Kwargs) -> bool:
    """Whether a factory gets neither a device, of its own or by default, nor a tensor."""
    # What the script has set; torch loads the module with the first one.
    default = getattr(sys.modules.get("torch.utils._device"), "CURRENT_DEVICE", None)
    if kwargs.get("device") is not None or default is not None:
        return False
    values = [*args, *kwargs.values()]
    values += [part for value in values for part in values_of(value)]
    return not any(isinstance(value, torch.Tensor) for value in values)


def _names_cpu(caller: FrameType) -> bool:
    """Whether the call that the frame executes says `.to("cpu")` literally.

    In a script that chooses its device, `.to(device)` copies to the host only without a GPU.
    """
    return bool(_NAMES_CPU.match(_call_text(caller)))


def _call_text(caller: FrameType) -> str:
    """The source of the call that the frame executes, from its last `.to(` on; empty if lost."""
    code, first = caller.f_code, caller.f_lineno or 0
    if sys.version_info < (3, 11):
        source = "".join(source_of(code.co_filename)[first - 1 : first]) if first > 0 else ""
    else:
        places = islice(code.co_positions(), caller.f_lasti // 2, None)
        begin, end, left, right = next(places, (None, None, None, None))
        if begin is None or end is None:
            return ""
        lines = source_of(code.co_filename)[begin - 1 : end]
        if not lines:
            return ""
        # Python counts columns in bytes.
        lines[-1] = lines[-1].encode()[:right].decode(errors="replace")
        lines[0] = lines[0].encode()[left:].decode(errors="replace")
        source = "".join(lines)
    return source[max(source.rfind(".to("), 0) :]
