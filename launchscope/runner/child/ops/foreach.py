"""Records optimizer updates as CUDA would run them, without a GPU and without changing them.

On CUDA an optimizer updates many tensors at once (foreach), on the CPU one after the other. Some of
them round differently then, so the many-tensor update runs on copies and is recorded, and the
script's own update runs unrecorded.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterable, Iterator
from types import FunctionType, ModuleType

from launchscope.host import free_memory
from launchscope.runner.child.interrupts import raise_if_interrupt
from launchscope.runner.child.ops.step_ops import HostTensors, StepStream, weak_storage
from launchscope.runner.child.ops.torch_modes import function_mode, without_modes_of_script
from launchscope.runner.child.plain_values import (
    computes_itself,
    is_a,
    is_tensor,
    own_attributes,
    tensor_call,
    tensor_field,
    values_of,
)
from launchscope.runner.child.reasons import ReasonError
from launchscope.runner.child.source_lines import is_persons
from launchscope.runner.child.torch_types import Args, Function, Kwargs, Mode, Torch, Value

_CHOICE = "_default_to_fused_or_foreach"
_MULTI, _SINGLE = "_multi_tensor_", "_single_tensor_"
_PLAIN = type(None), bool, str, complex  # beside numbers, which are copied
_KERNELS = "CPU", "Autograd", "Composite"  # where torch registers none in Python, of aten
_MEMORY_SHARE = 0.5  # of the free memory, that copies may take


@contextlib.contextmanager
def foreach_as_on_cuda(torch: Torch, stream: StepStream, host: HostTensors) -> Iterator[None]:
    """Inside, `stream` records optimizers and gradient clipping as on CUDA.

    An optimizer that the script has told which way to go is recorded as it runs.
    """
    with contextlib.ExitStack() as undo:

        def put(module: ModuleType, name: str, ours: Function) -> None:
            undo.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, ours)

        def many_supported(tensors: Value, device: Value) -> bool:
            return _are_plain(torch, tensors)

        def device_supported(device: Value) -> bool:
            return True

        clip = sys.modules["torch.nn.utils.clip_grad"]  # where both ways compute the same
        put(clip, "_has_foreach_support", many_supported)
        put(clip, "_device_has_foreach_support", device_supported)
        modules = () if _is_patched(torch) else list(sys.modules.items())
        for name, module in modules:
            if name.startswith("torch.optim.") and _CHOICE in own_attributes(module):
                updates = _Updates(torch, module, stream, host)
                for replaced, ours in updates.replacements().items():
                    put(module, replaced, ours)
        yield


def _is_patched(torch: Torch) -> bool:
    """Whether the script has put functions or kernels of its own into torch: an update on copies
    would call them once more."""
    kernels = (name.split("/") for name in torch.library._impls)  # aten/sqrt/CPU
    if any(n[0] == "aten" and n[-1].startswith(_KERNELS) for n in kernels):
        return True
    values = (*vars(torch.Tensor).values(), *vars(torch).values())
    return any(is_persons(v.__code__.co_filename) for v in values if type(v) is FunctionType)


class _Updates:
    """The updates of one module of torch.optim."""

    def __init__(self, torch: Torch, module: ModuleType, stream: StepStream, host: HostTensors):
        self._torch, self._stream, self._host = torch, stream, host
        self._functions = dict(vars(module))
        # Whether the script has left the choice of this thread's next update to torch.
        self._thread = threading.local()

    def replacements(self) -> dict[str, Function]:
        found: dict[str, Function] = {_CHOICE: self._choose}
        for name in self._functions:
            single = name.replace(_MULTI, _SINGLE)
            if name.startswith(_MULTI) and single in self._functions:
                found |= {name: self._many(name, single), single: self._single(single)}
        return found

    def _choose(
        self, params: Value, differentiable: bool, use_fused: bool = False
    ) -> tuple[bool, bool]:
        fused, foreach = self._functions[_CHOICE](params, differentiable, use_fused)
        chosen = fused or foreach or differentiable
        self._thread.undecided = not chosen and _are_plain(self._torch, params)
        return fused, foreach or self._thread.undecided

    def _single(self, name: str) -> Function:
        def update(*args: Value, **kwargs: Value) -> Value:
            self._thread.undecided = False
            return self._functions[name](*args, **kwargs)

        return update

    def _many(self, name: str, single: str) -> Function:
        many, one_by_one = self._functions[name], self._functions[single]

        def update(*args: Value, **kwargs: Value) -> Value:
            if not getattr(self._thread, "undecided", False):
                return many(*args, **kwargs)
            self._thread.undecided = False
            if any(map(self._runs_code, _leaves((args, kwargs)))):
                return one_by_one(*args, **kwargs)  # its class would count what runs on copies
            try:
                with without_modes_of_script():
                    copies = self._copies((args, kwargs))
                    with _constants_on_host(self._torch, self._host):
                        many(*copies[0], **copies[1])
            except Exception as error:
                raise_if_interrupt(error)
                self._host.error = error
            with self._host.recording_nothing():
                return one_by_one(*args, **kwargs)

        return update

    def _runs_code(self, value: Value) -> bool:
        """Whether an update with a copy of the value may call code of the value's class."""
        if is_tensor(self._torch, value):
            return computes_itself(self._torch, value)
        numpy = sys.modules.get("numpy")
        plain = (*_PLAIN, self._torch.dtype, self._torch.device)
        of_numpy = is_a(numpy, ModuleType) and is_a(value, *values_of(vars(numpy), "generic"))
        return not (of_numpy or is_a(value, int, float) or any(type(value) is one for one in plain))

    def _copies(self, values: tuple[Args, Kwargs]) -> tuple[Args, Kwargs]:
        """Raises ReasonError where there is no room."""
        size = sum(
            tensor_field(value, "nbytes")
            for value in _leaves(values)
            if is_tensor(self._torch, value) and not tensor_field(value, "is_sparse")
        )
        if size > _MEMORY_SHARE * free_memory():
            raise ReasonError("state_too_large", what="a copy of the update", mib=size / 2**20)
        with self._host.recording_nothing(), self._torch._C.DisableTorchFunctionSubclass():
            copied: tuple[Args, Kwargs] = self._copy(values)
        return copied

    def _copy(self, value: Value) -> Value:
        if is_tensor(self._torch, value):
            copy = tensor_call(tensor_call(value, "detach"), "clone")
            self._stream.produced.add(weak_storage(copy))  # it is no input
            if not tensor_field(value, "ndim") and weak_storage(value) in self._host.step_counts:
                self._host.step_counts.add(weak_storage(copy))
            return copy
        if is_a(value, dict):
            return {name: self._copy(part) for name, part in dict.items(value)}
        if is_a(value, list, tuple):
            parts = [self._copy(part) for part in values_of(value)]
            return parts if is_a(value, list) else tuple(parts)
        if is_a(value, float):
            return float.__float__(value)
        return int.__int__(value) if type(value) is not bool and is_a(value, int) else value


def _constants_on_host(torch: Torch, host: HostTensors) -> Mode:
    """Adds the number that an update adds to its step counts, which it makes on the host."""

    def on_call(func: Value, run: Function, args: Args, kwargs: Kwargs) -> Value:
        if func is torch.tensor and kwargs.get("device") == "cpu":
            with torch._C.DisableTorchFunction():  # it is no copy of the script
                return host.made(run, args, kwargs)
        return run(*args, **kwargs)

    return function_mode(on_call)


def _are_plain(torch: Torch, tensors: Iterable[Value]) -> bool:
    """Whether torch updates such tensors at once on CUDA; others it updates one by one."""
    plain = torch.Tensor, torch.nn.Parameter, type(None)
    return all(any(type(tensor) is kind for kind in plain) for tensor in tensors)


def _leaves(value: Value) -> Iterator[Value]:
    if is_a(value, dict, list, tuple):
        for part in values_of(value):
            yield from _leaves(part)
    else:
        yield value
